# SPDX-License-Identifier: Apache-2.0
"""A registry in files alone: in a directory that a web server shows, or on another server.

Nothing is asked of the server but files: ``registry.listing`` has the layout. The login for a web
server comes from ``~/.netrc``, or the file that ``NETRC`` names, as for pip and curl.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path

from kernforge.errors import NotPublishedError
from kernforge.registry import listing
from kernforge.registry.http import Http, check_address, reading
from kernforge.registry.listing import RemoteFile
from kernforge.registry.names import directory_name
from kernforge.registry.remote import Part, Transport
from kernforge.system.http import netrc_login


class FileTransport(Transport):
    """A server of files."""

    def read(self, repo_id: str, path: str) -> bytes:
        """A small file in the directory of a kernel.

        Raises:
            NotPublishedError: there is none.
        """
        raise NotImplementedError

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """Branches and tags of a kernel with their commits."""
        data = self.read(repo_id, listing.REFS)
        with reading(f"{self.address} about {repo_id}"):
            return listing.read_refs(data)

    def files(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile] | None:
        """All files of a commit by path; None if there is no such commit."""
        try:
            data = self.read(repo_id, f"listings/{commit}.json")
        except NotPublishedError:
            return None
        with reading(f"{self.address} about {repo_id}"):
            return listing.read_listing(data)


class StaticTransport(FileTransport):
    """Files below an address.

    Args:
        address: ``https://host/path``.
        netrc: the file with logins; it need not exist.
    """

    def __init__(self, address: str, netrc: Path, user_agent: str = "") -> None:
        self.address = check_address(address)
        self._http = Http(
            self.address,
            absent="publish it there, or copy the whole registry there again; the address of a hub "
            "is hf+https://host",
            denied="write the login for this host into ~/.netrc, or ask its operator for access",
            authorization=lambda: netrc_login(netrc, self.address),
            user_agent=user_agent,
        )

    def read(self, repo_id: str, path: str) -> bytes:
        """A small file in the directory of a kernel."""
        return self._http.document(f"kernel {repo_id!r}", self._url(repo_id, path))

    def open(self, repo_id: str, commit: str, part: Part) -> Generator[bytes, None, None]:  # noqa: ARG002
        """The bytes of a part of an object, as they arrive."""
        what, url = f"{part.path} of {repo_id}", self._url(repo_id, part.file.place)
        return self._http.stream(what, url, part.start, part.stop)

    def _url(self, repo_id: str, path: str) -> str:
        return f"{self.address}/{directory_name(repo_id)}/{path}"
