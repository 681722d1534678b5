# SPDX-License-Identifier: Apache-2.0
"""Which hub is meant, where its cache is and whether requests to it are allowed.

Decided by what ``huggingface_hub`` and ``kernels`` read, without importing either: ``HF_ENDPOINT``,
``HF_HUB_OFFLINE`` (and its old name ``TRANSFORMERS_OFFLINE``), ``KERNELS_CACHE``, ``HF_HUB_CACHE``,
``HF_HOME`` and ``XDG_CACHE_HOME`` mean what they mean there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernforge.errors import RegistryError
from kernforge.system.environment import Environment, expanded

VARIABLES = (
    *("HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
    *("KERNELS_CACHE", "HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "KERNFORGE_HOME"),
)
"""The variables that decide."""

_DEFAULT = "https://huggingface.co"
_ADDRESS = re.compile(r"https?://[^/\s@?#]+(?:/[^\s@?#]*)?")
_YES = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HubEndpoint:
    """A hub and its cache.

    Attributes:
        url: ``https://host`` without a slash at the end.
        cache: a directory that is laid out as the cache of ``huggingface_hub``.
        offline: whether only the cache is used.
        own_token: whether the user's token is meant for this hub.
        user_agent: added to the header ``User-Agent`` of every request.
    """

    url: str
    cache: Path
    offline: bool
    own_token: bool
    user_agent: str = ""


def find(location: str, environment: Environment, user_agent: str = "") -> HubEndpoint:
    """The hub that a registry's URL means.

    A hub other than that of ``HF_ENDPOINT`` gets a cache of its own, because a cache does not
    record whose ``v1`` it holds, and never receives the user's token, because that belongs to the
    other.

    Args:
        location: ``hf://``, ``hf+https://host`` or ``hf+http://host:port``.
        environment: says the usual hub, its cache and whether requests are allowed.

    Raises:
        RegistryError: this is not the address of a hub, or ``HF_ENDPOINT`` is not.
    """
    usual = _check_address(environment.hf_endpoint or _DEFAULT)
    url = usual if location == "hf://" else _check_address(location.removeprefix("hf+"))
    same = url == usual
    label = re.sub(r"[^A-Za-z0-9.-]+", "-", url.partition("://")[2])
    return HubEndpoint(
        url=url,
        cache=_cache(environment) if same else environment.home / "hubs" / label,
        offline=any(
            (text or "").upper() in _YES
            for text in (environment.hf_hub_offline, environment.transformers_offline)
        ),
        own_token=same,
        user_agent=user_agent,
    )


def _check_address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise RegistryError(
            f"{text!r} is not the address of a hub",
            hint="write it like https://host, without credentials: HF_TOKEN holds the token",
        )
    return text.rstrip("/")


def _cache(environment: Environment) -> Path:
    """The directory in which the hub's own tools keep kernels."""
    if chosen := environment.kernels_cache or environment.hf_hub_cache:
        return expanded(chosen)
    above = environment.xdg_cache_home or "~/.cache"
    base = environment.hf_home or f"{above}/huggingface"
    return expanded(base) / "hub"
