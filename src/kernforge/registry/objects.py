# SPDX-License-Identifier: Apache-2.0
"""A registry in a bucket: of Amazon S3 or a server with its protocol, of Google, of Azure.

``registry.listing`` has the layout. Obstore takes addresses and credentials from the variables of
each cloud's own tools.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from kernforge._version import __version__
from kernforge.errors import KernforgeError, NetworkError, RegistryError
from kernforge.registry import listing
from kernforge.registry.http import Http, reading
from kernforge.registry.names import directory_name, repo_ids
from kernforge.registry.remote import Part
from kernforge.registry.static import FileTransport
from kernforge.system import extras, http, untrusted
from kernforge.system.http import UNREACHABLE, BusyError, one_line

_ADDRESS = re.compile(r"(s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]*(/[^\s@?#%]*)?")
_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, or "
    "AWS_PROFILE where boto3 is installed; of a public bucket AWS_SKIP_SIGNATURE=true",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS; of a public bucket GOOGLE_SKIP_SIGNATURE=true",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY; of a public container "
    "AZURE_SKIP_SIGNATURE=true",
}

# obstore's errors have no fields: the answer of a server is in their text.
_STATUS = re.compile(r"status code: (\d{3})")
_REASON = re.compile(r'<Message>([^<]+)|(?:message|error): "([^"]+)"|InvalidCertificate\(\s*(\w+)')
# No server is there, or credentials that only machines of a cloud find: no retry helps.
_NOWHERE = re.compile(r"kind: Connect|http://169\.254\.|metadata\.google")


class ObjectTransport(FileTransport):
    """Objects below a prefix of a bucket.

    Args:
        location: ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``.
        variables: the process's: ``AWS_PROFILE`` may be in the place of a key.

    Attributes:
        store: obstore's.
    """

    def __init__(self, location: str, variables: Mapping[str, str], user_agent: str = "") -> None:
        if not _ADDRESS.fullmatch(location):
            raise RegistryError(
                f"{location!r} is not the address of a bucket",
                hint="write it like s3://bucket/prefix; credentials come from variables",
            )
        extras.require(("obstore",), f"the registry {location}")
        import obstore.exceptions  # noqa: PLC0415 - an extra
        import obstore.store  # noqa: PLC0415

        self._obstore: Any = obstore
        self.address, self._process = location.rstrip("/"), os.getpid()
        self._public = any(name.endswith("_SKIP_SIGNATURE") for name in variables)
        hint = self._hint = (
            "check the address, that the account may get, list and put its objects, and the "
            f"variables {_VARIABLES[self.address[:2]]}"
        )
        self._http = Http(
            self.address,
            absent=hint,
            denied=hint,
            user_agent=user_agent,
            unreachable=f"{UNREACHABLE}; {hint}",
        )
        has_key = self._public or location[:2] != "s3" or variables.get("AWS_ACCESS_KEY_ID")
        client = {
            "connect_timeout": "10s",
            "read_timeout": "30s",
            "timeout": "1day",
            "allow_http": True,  # where AWS_ENDPOINT_URL says so
            "user_agent": f"kernforge/{__version__}; {user_agent}".rstrip("; "),
        }
        with self.asking("these variables"):
            self.store = self._obstore.store.from_url(
                self.address,
                client_options=client,
                retry_config={"max_retries": 3},
                credential_provider=None if has_key else _profile(),
            )

    def read(self, repo_id: str, path: str) -> bytes:
        """A small object in the directory of a kernel."""
        return self.document(repo_id, path)[0]

    def stored_refs(self, repo_id: str) -> tuple[dict[str, str], dict[str, str]]:
        """The references, and the state of their object for a conditional replacement."""
        data, state = self.document(repo_id, listing.REFS)
        with reading(f"{self.address} about {repo_id}"):
            return listing.read_refs(data), state

    def open(self, repo_id: str, commit: str, part: Part) -> Generator[bytes, None, None]:  # noqa: ARG002
        """The bytes of a part of an object, as they arrive."""
        path = f"{directory_name(repo_id)}/{part.file.place}"
        if url := self._signed(repo_id, path):
            yield from self._http.stream(repo_id, url, part.start, part.stop)
            return
        with self.asking(repo_id):
            options = {"range": (part.start, part.stop)}
            yield from self._obstore.get(self.store, path, options=options).stream(1)

    def repo_ids(self) -> tuple[str, ...]:
        """The kernels in the bucket, sorted."""
        import asyncio  # noqa: PLC0415 - slow, and for lists alone

        async def listed() -> Any:
            listing = self._obstore.list_with_delimiter_async(self.store)
            return await asyncio.wait_for(listing, http.ANSWER_S)

        # In a thread: a notebook's own has a loop of events.
        with self.asking("its list of kernels"), ThreadPoolExecutor(1) as pool:
            return repo_ids(pool.submit(lambda: asyncio.run(listed())).result()["common_prefixes"])

    def link(self, repo_id: str, commit: str, part: Part) -> str | None:  # noqa: ARG002
        """A URL that gives the part's object to anybody for 15 minutes; None without a login."""
        path = f"{directory_name(repo_id)}/{part.file.place}"
        with contextlib.suppress(KernforgeError), self.asking(repo_id):
            if not self._public:
                return str(self._obstore.sign(self.store, "GET", path, timedelta(minutes=15)))
        return None

    def sizes(self, repo_id: str, folder: str = "") -> dict[str, int]:
        """Bytes of each object of a kernel, by its path in the kernel's directory."""
        root = directory_name(repo_id)
        sizes: dict[str, int] = {}
        meter = untrusted.Meter(self.address, untrusted.DOCUMENT, http.ANSWER_S)
        with self.asking(repo_id):
            for page in self._obstore.list(self.store, f"{root}/{folder}"):
                sizes |= {o["path"].removeprefix(f"{root}/"): o["size"] for o in page}
                meter.count(sum(len(o["path"]) for o in page))
        return sizes

    def document(self, repo_id: str, path: str) -> tuple[bytes, dict[str, str]]:
        """A small object in a kernel's directory, and its state for a conditional replacement."""
        path = f"{directory_name(repo_id)}/{path}"
        if url := self._signed(repo_id, path):
            with self._http.request(repo_id, url) as response:
                named = {"e_tag": "ETag", "version": "x-amz-version-id"}.items()
                headers = response.headers
                return response.read(), {k: headers[name] for k, name in named if headers[name]}
        with self.asking(repo_id):
            found = self._obstore.get(self.store, path)
            chunks = untrusted.bounded(found.stream(1), path, untrusted.DOCUMENT)
            state = {name: found.meta[name] for name in ("e_tag", "version") if found.meta[name]}
            return b"".join(chunks), state

    def _signed(self, repo_id: str, path: str) -> str:
        """The URL of an object of S3; empty elsewhere, where a login is no header of its own.

        Obstore would send the header of a session's token to another host, to which a server leads.
        """
        if self._public or not self.address.startswith("s3:"):
            return ""
        with self.asking(repo_id):
            return str(self._obstore.sign(self.store, "GET", path, timedelta(minutes=15)))

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Convert the errors of obstore.

        Raises:
            MovedError: the condition of a write does not hold: there is a newer object.
        """
        if os.getpid() != self._process:  # its threads are not in a fork, which would wait for ever
            raise RegistryError(
                f"{self.address} cannot be used in a forked process",
                hint="load the kernel before the fork, or start processes with spawn",
            )
        try:
            yield
        except TimeoutError:
            raise NetworkError(
                f"{self.address} sent no complete answer in {http.ANSWER_S:.0f} seconds",
                hint="run the command again later, or check the address",
            ) from None
        except (self._obstore.exceptions.BaseError, FileNotFoundError) as error:
            raise self._error(error, what) from error

    def _error(self, error: Exception, what: str) -> KernforgeError:
        text, errors = str(error), self._obstore.exceptions
        status = int(match[1]) if (match := _STATUS.search(text)) else 0
        if isinstance(error, (errors.AlreadyExistsError, errors.PreconditionError)):
            status = 412
        match = _REASON.search(text) if status or "HTTP error" in text else None
        reason = one_line(match[match.lastindex or 0] if match else text.partition("\n")[0])
        if status:
            return self._http.refused(what, status, {}, reason)
        if "HTTP error" not in text:
            return RegistryError(f"{self.address} cannot be used: {reason}", hint=self._hint)
        kind = NetworkError if _NOWHERE.search(text) else BusyError
        hint = f"{UNREACHABLE}; {self._hint}"
        return kind(f"{self.address} cannot be reached: {reason}", hint=hint)


def _profile() -> Any:
    """Credentials of the AWS tools' own files, which boto3 reads; None without."""
    if importlib.util.find_spec("boto3") is None:
        return None
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - optional, and slow
    from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415

    try:
        return Boto3CredentialProvider()
    except ValueError:  # there are none
        return None
    except BotoCoreError as error:
        raise RegistryError(str(error), hint="check AWS_PROFILE and ~/.aws") from error
