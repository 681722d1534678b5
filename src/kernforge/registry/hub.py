# SPDX-License-Identifier: Apache-2.0
"""A registry on a Hugging Face hub, read through the cache that the hub's own tools use.

A kernel is a repository of type ``kernel``: a branch ``v<major>`` and tags ``vX.Y.Z`` hold
``build/<variant>/<file>``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kernforge.errors import NetworkError, RegistryError, UsageError
from kernforge.registry.hub_client import HubClient, library, progress_bar
from kernforge.registry.remote import RemoteRegistry

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from kernforge.registry.hub_endpoint import HubEndpoint


class HubRegistry(RemoteRegistry):
    """A hub."""

    def __init__(self, endpoint: HubEndpoint, client: HubClient | None = None) -> None:
        self.client = client or HubClient(endpoint)
        super().__init__(self.client, f"hf+{endpoint.url}")
        self.endpoint = endpoint

    def search(self, text: str, limit: int) -> tuple[str, ...]:
        """The kernels of the hub that it finds for a text, the hub's best first.

        Raises:
            RegistryError: requests are not allowed.
            NetworkError: the hub cannot be reached.
        """
        if self.endpoint.offline:
            raise RegistryError(
                f"{self.endpoint.url} is not asked: HF_HUB_OFFLINE is set",
                hint="unset it, or list what is on this machine: kernforge search --local",
            )
        return self.client.search(text, limit)

    def lacks(self) -> UsageError | None:
        """What requests need and this Python lacks; None where all is there."""
        if self.endpoint.offline:
            return None
        try:
            library()
        except UsageError as error:
            return error
        return None

    def is_trusted_publisher(self, owner: str) -> bool | None:
        """Whether the hub marks an organisation as a trusted publisher of kernels."""
        if self.endpoint.offline:
            raise NetworkError(
                f"{self.endpoint.url} is not asked, so it cannot say whether {owner} is a "
                "trusted publisher: HF_HUB_OFFLINE is set",
                hint="allow the kernel by name, or load it once while the hub can be reached",
            )
        return self.client.trusts(owner)

    def offline(self) -> HubRegistry:
        """The same hub, restricted to its cache."""
        return HubRegistry(dataclasses.replace(self.endpoint, offline=True))

    def progress(self, what: str, size: int) -> AbstractContextManager[Callable[[int], None]]:
        """The hub's own progress bar."""
        return progress_bar(what, size)
