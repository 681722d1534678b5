# SPDX-License-Identifier: Apache-2.0
"""The user's logins for registries of containers, where docker and podman keep them."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from kernforge.errors import RegistryError
from kernforge.system import untrusted
from kernforge.system.environment import Environment, user_file

_RUN = "/run/containers"

Login: TypeAlias = tuple[str, str]
"""User name and password; the user ``<token>`` has an identity token."""

_HELPER, _HELPER_S = re.compile(r"[A-Za-z0-9._-]+"), 30.0


def login_files(environment: Environment) -> tuple[Path, ...]:
    """Where docker and podman keep logins; the files need not exist."""
    get = environment.variables.get
    named = [get("REGISTRY_AUTH_FILE")]
    # skopeo and podman write there where no session of the user has a directory.
    runtime = get("XDG_RUNTIME_DIR")
    named.append(
        f"{runtime}/containers/auth.json" if runtime else f"{_RUN}/{os.geteuid()}/auth.json"
    )
    named.append(f"{get('DOCKER_CONFIG') or '~/.docker'}/config.json")
    return tuple(user_file(path) for path in named if path)


def find_login(paths: Iterable[Path], host: str) -> Login | None:
    """The user's login for a registry: of the first file that has one; None without.

    Raises:
        RegistryError: a file is malformed, or a credential helper is missing or fails.
    """
    for path in filter(os.path.isfile, paths):
        try:
            config = untrusted.parse_json(path.read_bytes())
            # Docker also writes https://host/v1/.
            auths = {
                re.sub(r"^https?://|(?:/v[12])?/?$", "", key): entry
                for key, entry in config.get("auths", {}).items()
            }
            login = (
                _ask(config.get("credHelpers", {}).get(host), host)
                or _read(auths.get(host, {}))
                or _ask(config.get("credsStore"), host)
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise RegistryError(
                f"{path} gives no login for {host}: {error}",
                hint=f"log in again: docker login {host}",
            ) from error
        if login:
            return login
    return None


def _read(entry: Any) -> Login | None:
    """The login in an entry of ``auths``, which is empty where a helper has it."""
    if token := entry.get("identitytoken"):
        return "<token>", token
    user, _, password = base64.b64decode(entry.get("auth", "")).decode().partition(":")
    return (user, password) if user else None


def _ask(name: str | None, host: str) -> Login | None:
    """The login that a program ``docker-credential-<name>`` has; None without one."""
    if not name:
        return None
    from kernforge.system.process import Command, run  # noqa: PLC0415 - only where a login has it

    program = f"docker-credential-{name}"
    if not _HELPER.fullmatch(name):  # a path: a program of the directory that has the file
        raise ValueError(f"{program!r} is not the name of a program")
    done = run(Command(argv=(program, "get"), stdin=host, timeout=_HELPER_S))
    if done.returncode == 0:
        document = untrusted.parse_json(done.stdout)
        return str(document["Username"]), str(document["Secret"])
    if "credentials not found" in done.stdout + done.stderr:
        return None
    raise ValueError(f"{program} says {done.stdout + done.stderr}")
