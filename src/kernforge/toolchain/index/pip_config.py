# SPDX-License-Identifier: Apache-2.0
"""Where packages come from: the user's own pip configuration, read as pip documents it.

Files are read from the least to the most specific, environment variables ``PIP_<OPTION>`` win, and
in each file the section of the command (``[download]``) wins over ``[global]``. Names of options
and precedence: pip's documentation, "Configuration".
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from kernforge.errors import UsageError

_SECTIONS = ("global", "download")
_TRUE = {"1", "true", "yes", "on", "y", "t"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipConfig:
    """What a download needs to know of pip's configuration.

    Attributes:
        index_urls: simple-API roots, the main one first; empty with ``no-index``.
        find_links: directories or pages that list files directly.
        cert: a file of certificate authorities; None uses the client's own.
        client_cert: a client certificate in PEM form.
        proxy: a proxy for http and https; None leaves it to the environment.
        trusted_hosts: hosts whose certificate is not verified.
        timeout_s: seconds without an answer after which a request ends.
    """

    index_urls: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout_s: float = 15.0


def read(
    files: Iterable[tuple[str, str]], env: Mapping[str, str], *, default_index: str
) -> PipConfig:
    """Merge configuration files and environment into one value.

    Args:
        files: (name, text) of each file, the least specific first.
        default_index: the index when none is configured.
    """
    options: dict[str, str] = {}
    for name, text in files:
        options |= _options(name, text)
    for variable, value in env.items():
        if variable.startswith("PIP_") and value:
            options[variable.removeprefix("PIP_").lower().replace("_", "-")] = value
    timeout = options.get("timeout") or options.get("default-timeout") or "15"
    if not re.fullmatch(r"\d+(\.\d*)?", timeout):
        raise UsageError(f"pip's timeout is {timeout!r}, which is not a number of seconds")
    indexes = [
        *(options.get("index-url") or default_index).split(),
        *options.get("extra-index-url", "").split(),
    ]
    return PipConfig(
        index_urls=() if options.get("no-index", "").lower() in _TRUE else tuple(indexes),
        find_links=tuple(options.get("find-links", "").split()),
        cert=options.get("cert"),
        client_cert=options.get("client-cert"),
        proxy=options.get("proxy"),
        trusted_hosts=tuple(options.get("trusted-host", "").split()),
        timeout_s=float(timeout),
    )


def file_names(env: Mapping[str, str], *, home: str, prefix: str) -> tuple[str, ...]:
    """Where pip looks for its files on Linux, the least specific first.

    Args:
        env: the process environment; ``PIP_CONFIG_FILE`` adds one, and as ``/dev/null`` leaves
            none.
        prefix: ``sys.prefix``, the root of the virtual environment.
    """
    extra = env.get("PIP_CONFIG_FILE")
    if extra == "/dev/null":
        return ()
    config_dirs = env.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    return (
        *(f"{directory}/pip/pip.conf" for directory in reversed(config_dirs.split(":"))),
        "/etc/pip.conf",
        f"{home}/.pip/pip.conf",
        f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/pip/pip.conf",
        f"{prefix}/pip.conf",
        *((extra,) if extra else ()),
    )


def is_trusted(config: PipConfig, url: str) -> bool:
    """Whether the user told pip not to verify this host's certificate."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    with_port = f"{host}:{parts.port}" if parts.port else host
    return host in config.trusted_hosts or with_port in config.trusted_hosts


def _options(name: str, text: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text, source=name)
    except configparser.Error as error:
        raise UsageError(
            f"{name} is not a pip configuration file: {error}",
            hint="fix it, or point PIP_CONFIG_FILE at another one",
        ) from error
    options: dict[str, str] = {}
    for section in _SECTIONS:
        if parser.has_section(section):
            options |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    return options
