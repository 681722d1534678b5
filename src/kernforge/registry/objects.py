# SPDX-License-Identifier: Apache-2.0
"""A registry in a bucket: of Amazon S3 or a server with its protocol, of Google, of Azure.

``registry.listing`` has the layout. Addresses and credentials come from the variables of each
cloud's own tools; obstore looks for those that are not named here in the process's own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from kernforge._version import __version__
from kernforge.errors import (
    KernforgeError,
    MovedError,
    NetworkError,
    NotPublishedError,
    RegistryError,
)
from kernforge.registry import listing
from kernforge.registry.http import BusyError, busy, one_line, reading
from kernforge.registry.listing import RemoteFile
from kernforge.registry.names import directory_name, repo_ids
from kernforge.registry.remote import Part, Transport
from kernforge.system import extras, untrusted

PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
"""By the scheme of an address: how the names of the variables begin that configure it."""

_ADDRESS = re.compile(r"(s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]*(/[^\s@?#%]*)?")
_PASSED = re.compile(
    r"AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|(DEFAULT_)?REGION|ENDPOINT_URL)"
    r"|GOOGLE_(APPLICATION_CREDENTIALS|SERVICE_ACCOUNT)"
    r"|AZURE_STORAGE_(ACCOUNT_NAME|ACCOUNT_KEY|SAS_TOKEN|USE_EMULATOR|ENDPOINT)"
    r"|(AWS|GOOGLE|AZURE)_SKIP_SIGNATURE"
)
_LOGIN = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE where boto3 is "
    "installed; AWS_REGION and AWS_ENDPOINT_URL name the server, AWS_SKIP_SIGNATURE=true reads a "
    "public bucket",
    "gs": "name a key file in GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth "
    "application-default login; GOOGLE_SKIP_SIGNATURE=true reads a public bucket",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or, after az login, "
    "AZURE_USE_AZURE_CLI=true; AZURE_SKIP_SIGNATURE=true reads a public container",
}

# obstore's errors have no fields: the answer of a server is in their text.
_STATUS = re.compile(r"status code: (\d{3})")
_REASON = re.compile(r'<Message>([^<]+)|(?:message|error): "([^"]+)"|InvalidCertificate\(\s*(\w+)')
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound")
# obstore asks for credentials last where only machines of a cloud have some.
_NO_LOGIN = re.compile(
    r"http://169\.254\.|metadata\.google|Missing(Secret)?AccessKey|MissingAccount"
)


class ObjectTransport(Transport):
    """Objects below a prefix of a bucket.

    Args:
        location: ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``.
        variables: those that configure it, see ``PREFIXES``.

    Attributes:
        store: obstore's.
        endpoint: the server's address, where a variable names it.
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
        self.address, self._scheme = location.rstrip("/"), location[:2]
        self._process = os.getpid()
        passed = {n: v for n, v in variables.items() if v and _PASSED.fullmatch(n)}
        self.endpoint = passed.get("AWS_ENDPOINT_URL", "")
        self._public = any(name.endswith("_SKIP_SIGNATURE") for name in passed)
        has_login = self._public or self._scheme != "s3" or "AWS_ACCESS_KEY_ID" in passed
        client = {
            "connect_timeout": "10s",
            "read_timeout": "30s",
            "timeout": "1day",
            "allow_http": any(value.startswith("http://") for value in variables.values()),
            "user_agent": f"kernforge/{__version__}; {user_agent}".rstrip("; "),
        }
        with self.asking("these variables"):
            self.store = self._obstore.store.from_url(
                self.address,
                config=passed,
                client_options=client,
                retry_config={"max_retries": 3},
                credential_provider=None if has_login else _profile(variables),
            )

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """Branches and tags of a kernel with their commits."""
        return self.stored_refs(repo_id)[0]

    def stored_refs(self, repo_id: str) -> tuple[dict[str, str], dict[str, str]]:
        """The references, and the state of their object for a conditional replacement."""
        data, state = self.document(repo_id, listing.REFS)
        with reading(f"{self.address}/{directory_name(repo_id)}/{listing.REFS}"):
            return listing.read_refs(data), state

    def files(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile] | None:
        """All files of a commit by path; None if there is no such commit."""
        path = f"listings/{commit}.json"
        try:
            data, _ = self.document(repo_id, path)
        except NotPublishedError:
            return None
        with reading(f"{self.address}/{directory_name(repo_id)}/{path}"):
            return listing.read_listing(data)

    def open(self, repo_id: str, commit: str, part: Part) -> Iterator[bytes]:  # noqa: ARG002
        """The bytes of a part of an object, as they arrive."""
        path = f"{directory_name(repo_id)}/{part.place}"
        with self.asking(repo_id):
            options = {"range": (part.start, part.stop)}
            yield from self._obstore.get(self.store, path, options=options).stream(1)

    def repo_ids(self) -> tuple[str, ...]:
        """The kernels in the bucket, sorted."""
        with self.asking("its list of kernels"):
            return repo_ids(self._obstore.list_with_delimiter(self.store)["common_prefixes"])

    def link(self, repo_id: str, commit: str, part: Part) -> str | None:  # noqa: ARG002
        """A URL that gives the part's object to anybody for 15 minutes; None without a login."""
        path = f"{directory_name(repo_id)}/{part.place}"
        with contextlib.suppress(KernforgeError), self.asking(repo_id):
            if not self._public:
                return str(self._obstore.sign(self.store, "GET", path, timedelta(minutes=15)))
        return None

    def sizes(self, repo_id: str, folder: str = "") -> dict[str, int]:
        """Bytes of each object of a kernel, by its path in the kernel's directory."""
        root = directory_name(repo_id)
        with self.asking(repo_id):
            pages = self._obstore.list(self.store, f"{root}/{folder}")
            return {o["path"].removeprefix(f"{root}/"): o["size"] for page in pages for o in page}

    def document(self, repo_id: str, path: str) -> tuple[bytes, dict[str, str]]:
        """A small object in a kernel's directory, and its state for a conditional replacement."""
        with self.asking(repo_id):
            found = self._obstore.get(self.store, f"{directory_name(repo_id)}/{path}")
            chunks = untrusted.bounded(found.stream(1), path, untrusted.DOCUMENT)
            state = {name: found.meta[name] for name in ("e_tag", "version") if found.meta[name]}
            return b"".join(chunks), state

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
        except (self._obstore.exceptions.BaseError, FileNotFoundError) as error:
            raise self._error(error, what) from error

    def _error(self, error: Exception, what: str) -> KernforgeError:
        text, errors, login = str(error), self._obstore.exceptions, _LOGIN[self._scheme]
        status = int(match[1]) if (match := _STATUS.search(text)) else 0
        unreachable = "HTTP error" in text and not status
        match = _REASON.search(text) if status or unreachable else None
        reason = one_line(match[match.lastindex or 0] if match else text.partition("\n")[0])
        if isinstance(error, (errors.AlreadyExistsError, errors.PreconditionError)):
            return MovedError(f"another process published {what} at once", hint="publish again")
        if _NO_LOGIN.search(text):
            return RegistryError(f"there are no credentials for {self.address}", hint=login)
        if isinstance(error, FileNotFoundError) and not _NO_BUCKET.search(text):
            return NotPublishedError(
                f"{self.address} has no kernel {what!r}",
                hint="publish it there, or check the path behind the bucket",
            )
        if unreachable:
            kind = NetworkError if "kind: Connect" in text else BusyError
            return kind(
                f"{self.address} cannot be reached: {reason}",
                hint=f"check the network, HTTPS_PROXY and NO_PROXY; {login}; the certificate of "
                "an own authority is named in SSL_CERT_FILE",
            )
        return busy(self.address, status, {}) or RegistryError(
            f"{self.address} refuses {what}: {f'HTTP {status}, ' if status else ''}{reason}",
            hint="check the name of the bucket, and that the account may get and list its objects, "
            f"and put them to publish; {login}",
        )


def _profile(variables: Mapping[str, str]) -> Any:
    """Credentials of the AWS tools' own files, which boto3 reads; None without."""
    if importlib.util.find_spec("boto3") is None:
        return None
    import boto3  # noqa: PLC0415 - optional, and slow
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415
    from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415

    try:
        return Boto3CredentialProvider(boto3.Session(profile_name=variables.get("AWS_PROFILE")))
    except ValueError:  # there are none
        return None
    except BotoCoreError as error:
        raise RegistryError(str(error), hint="check AWS_PROFILE and ~/.aws") from error
