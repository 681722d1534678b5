# SPDX-License-Identifier: Apache-2.0
"""A registry in a directory that a web server shows, or in a bucket with a website.

Nothing is asked of the server but files: ``registry.listing`` has the layout. A login comes from
``~/.netrc``, or the file that ``NETRC`` names, as for pip and curl.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kernforge.errors import KernforgeError, NotPublishedError, RegistryError
from kernforge.registry import listing
from kernforge.registry.http import NOT_FOUND, Http, one_line, reading
from kernforge.registry.listing import RemoteFile
from kernforge.registry.names import directory_name
from kernforge.registry.remote import Part, Transport

_DENIED = (401, 403)


class StaticTransport(Transport):
    """Files below an address.

    Args:
        address: ``https://host/path`` without a slash at the end.
        netrc: the file with logins; it need not exist.
    """

    def __init__(self, address: str, netrc: Path | None = None, user_agent: str = "") -> None:
        self.address = address
        self._http = Http(
            address, self._refused, authorization=self._authorization, user_agent=user_agent
        )
        self._netrc = netrc

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """Branches and tags of a kernel with their commits."""
        url = f"{self.address}/{directory_name(repo_id)}/{listing.REFS}"
        data = self._http.document(repo_id, url)
        with reading(url):
            return listing.read_refs(data)

    def files(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile] | None:
        """All files of a commit by path; None if there is no such commit."""
        url = f"{self.address}/{directory_name(repo_id)}/listings/{commit}.json"
        try:
            data = self._http.document(repo_id, url)
        except NotPublishedError:
            return None
        with reading(url):
            return listing.read_listing(data)

    def open(self, repo_id: str, commit: str, part: Part) -> Iterator[bytes]:  # noqa: ARG002
        """The bytes of a part of an object, as they arrive."""
        url = f"{self.address}/{directory_name(repo_id)}/{part.place}"
        return self._http.stream(repo_id, url, part.start, part.stop)

    def _authorization(self) -> str:
        import netrc  # noqa: PLC0415 - slow, and not for a warm cache

        with contextlib.suppress(OSError, netrc.NetrcParseError):
            login = self._netrc and netrc.netrc(self._netrc).authenticators(
                urlsplit(self.address).hostname or ""
            )
            if login:
                pair = base64.b64encode(f"{login[0]}:{login[2]}".encode()).decode()
                return f"Basic {pair}"
        return ""

    def _refused(self, what: str, status: int, headers: Any, reason: str) -> KernforgeError:  # noqa: ARG002
        if status == NOT_FOUND:
            return NotPublishedError(
                f"{self.address} has no kernel {what!r}, or not all of its files",
                hint="publish it there, or copy the registry there again; of a hub the address is "
                "hf+https://host",
            )
        login = "write the login for this host into ~/.netrc, or ask the operator for access"
        return RegistryError(
            f"{self.address} refuses {what}: HTTP {status}, {one_line(reason)}",
            hint=login if status in _DENIED else "check the address, or copy the registry again",
        )
