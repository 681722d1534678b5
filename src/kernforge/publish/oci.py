# SPDX-License-Identifier: Apache-2.0
"""Publish to a registry of the OCI distribution protocol; ``registry.oci`` has the layout.

Blobs are written first, then the manifest of each variant and its signature as a referrer, then the
index, and the tags last: ``vX.Y.Z``, then ``v<major>`` and ``main``. A reader sees the old version
or the new one; an interrupted publication is finished by the next one, and what it left is garbage
that the registry collects.

The protocol cannot write a tag only if it is absent. The tag of a version is looked at immediately
before it is written, and twice afterwards: a publisher whose version was overwritten meanwhile
begins again. What remains: if a publisher is suspended between its look and its write until another
one has finished, it overwrites the other's version. A rule of immutable tags in the registry
excludes that.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import tarfile
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from kernforge.artifact.metadata import FILE, SIGNATURE
from kernforge.errors import MovedError, NotPublishedError
from kernforge.publish.destination import Destination, refuse_changed
from kernforge.registry.listing import RemoteFile, folder_of, write_listing
from kernforge.registry.names import branches
from kernforge.registry.oci import FILES, INDEX, OciTransport, following
from kernforge.registry.remote import again
from kernforge.system import files, untrusted
from kernforge.system.digest import sha256

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernforge.publish.destination import Release
    from kernforge.registry.remote import RemoteRegistry

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_KERNEL = "application/vnd.kernforge.files.v1"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_EMPTY = "application/vnd.oci.empty.v1+json"
_ROUNDS = 10

Descriptor: TypeAlias = dict[str, Any]


class OciDestination(Destination):
    """An OCI registry."""

    def __init__(self, registry: RemoteRegistry, transport: OciTransport) -> None:
        super().__init__(registry)
        self._oci = OciTransport(
            transport.location, transport.logins, transport.user_agent, actions="pull,push"
        )

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commits of all tags."""
        with contextlib.suppress(NotPublishedError):
            return again(lambda: self._oci.refs(repo_id))
        return {}

    def upload(self, repo_id: str, release: Release) -> str:
        """Write the blobs, the manifests, and the index under its tag."""
        upload = _Upload(self._oci, repo_id, self.registry.root)
        with self.with_card(release) as whole:
            index = upload.index(whole)
        commit = sha256(index)
        if commit != self.known.get(release.reference):
            upload.put(release.reference, index, INDEX, create=release.version is not None)
        return commit

    def finish(self, repo_id: str, release: Release, commit: str) -> bool:
        """Make ``v<major>`` and ``main`` the newest versions.

        It ends when all is as the tags say: another publisher may do the same at once.
        """
        upload = _Upload(self._oci, repo_id, self.registry.root)
        for done in range(_ROUNDS):
            refs = self.refs(repo_id)
            if refs.get(release.reference) != commit:
                break
            wanted = branches(refs).items()
            stale = {name: each for name, each in wanted if refs.get(name) != each}
            if not stale:
                return done > 0
            for name, each in stale.items():
                index = again(functools.partial(self._oci.index, repo_id, each))
                upload.put(name, index or b"", INDEX)
        raise _moved(repo_id, release.reference)

    def url(self, repo_id: str, reference: str, commit: str) -> str:  # noqa: ARG002
        """The repository with its tag."""
        return f"{self.registry.url}/{repo_id}:{reference}"


class _Upload:
    """Uploads to one repository.

    Args:
        scratch: directory for the layer that is being made.
    """

    def __init__(self, oci: OciTransport, repo_id: str, scratch: Path) -> None:
        self._oci, self._repo_id, self._scratch = oci, repo_id, scratch
        self._http = oci.http(repo_id)

    def index(self, release: Release) -> bytes:
        """Upload all of a release but its index, which is returned."""
        folders: dict[str, dict[str, str]] = {}
        for path, digest in release.tree.items():
            folder = f"{folder_of(path)}/" if path.startswith("build/") else ""
            folders.setdefault(folder, {})[path.removeprefix(folder)] = digest
        manifests: list[Descriptor] = []
        # The variants first: of an index, many tools look at the first manifest alone.
        for folder in sorted(folders, key=lambda folder: (not folder, folder)):
            manifests += self._folder(folder, folders[folder], release.files)
        return _document(INDEX, manifests=manifests)

    def put(self, reference: str, data: bytes, kind: str, *, create: bool = False) -> Any:
        """Write a manifest under a tag or its digest; returns the headers of the answer.

        Args:
            create: refuse to change a tag of another manifest.
        """
        url = self._oci.url(self._repo_id, f"manifests/{reference}")
        what, headers = f"{self._repo_id}:{reference}", {"Content-Type": kind}

        def attempt() -> Any:
            # Before each attempt: seconds may lie between two.
            if create and self._oci.ref(self._repo_id, reference) not in {None, sha256(data)}:
                raise _moved(self._repo_id, reference)
            with self._http.request(what, url, headers, method="PUT", body=data) as response:
                return response.headers

        return again(attempt)

    def _folder(
        self, folder: str, names: dict[str, str], contents: Mapping[str, Path]
    ) -> list[Descriptor]:
        """Upload the manifest of a variant and its signature, or that of the rest of a commit.

        Args:
            folder: with a slash at its end; empty for the rest.
            names: hex SHA-256 of each file by its path in the folder.
            contents: the files, by hex SHA-256.
        """
        signature = names.pop(SIGNATURE, None) if folder else None
        with files.scratch_file(self._scratch) as tar:
            placed = write_layer(names, contents, tar)
            size = tar.tell()
            tar.seek(0)
            layer = hashlib.file_digest(tar, "sha256").hexdigest()  # type: ignore[arg-type]
            self._push(layer, size, tar)
        manifest = _document(
            MANIFEST,
            artifactType=_KERNEL,
            config=self._blob(b"{}", _EMPTY),
            layers=[_descriptor(_LAYER, layer, size)],
        )
        own = self._put_once(manifest, MANIFEST)
        listing = {folder + name: replace(file, pack=layer) for name, file in placed.items()}
        described = [{**own, "annotations": {FILES: write_listing(listing)}}]
        if signature is not None:
            bundle = contents[signature].read_bytes()
            listing = {folder + SIGNATURE: RemoteFile(size=len(bundle), blob=signature)}
            referrer = self._refer(own, bundle)
            described.append({**referrer, "annotations": {FILES: write_listing(listing)}})
        return described

    def _refer(self, subject: Descriptor, bundle: bytes) -> Descriptor:
        """Upload a Sigstore bundle as a referrer of a manifest, which cosign and its like find.

        The index lists it too, so that copies of a release have it.
        """
        more = {
            "artifactType": BUNDLE,
            "annotations": {"dev.sigstore.bundle.content": "message-signature"},
        }
        layers = [self._blob(bundle, BUNDLE)]
        config = self._blob(b"{}", _EMPTY)
        manifest = _document(MANIFEST, config=config, layers=layers, subject=subject, **more)
        own = _descriptor(MANIFEST, sha256(manifest), len(manifest))
        if "OCI-Subject" not in self.put(own["digest"], manifest, MANIFEST):
            # The registry knows no referrers: clients look for an index under this tag.
            tag = subject["digest"].replace(":", "-")
            index = again(lambda: self._oci.index(self._repo_id, tag))
            there = untrusted.parse_json(index)["manifests"] if index else []
            if own["digest"] not in {each["digest"] for each in there}:
                self.put(tag, _document(INDEX, manifests=[*there, {**own, **more}]), INDEX)
        return own

    def _blob(self, data: bytes, kind: str) -> Descriptor:
        """Upload a small blob; returns its descriptor."""
        self._push(sha256(data), len(data), data)
        return _descriptor(kind, sha256(data), len(data))

    def _push(self, digest: str, size: int, body: bytes | IO[bytes]) -> None:
        """Upload a blob, unless it is there."""
        start = self._oci.url(self._repo_id, "blobs/uploads/")
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}

        def attempt() -> None:
            if self._has(f"blobs/sha256:{digest}"):
                return
            with self._http.request(self._repo_id, start, method="POST", body=b"") as response:
                place = following(start, response.headers.get("Location", ""))
            url = f"{place}{'&' if '?' in place else '?'}digest=sha256:{digest}"
            with self._http.request(self._repo_id, url, headers, method="PUT", body=body):
                pass

        again(attempt)

    def _put_once(self, data: bytes, kind: str) -> Descriptor:
        """Write a manifest by its digest, unless it is there; returns its descriptor.

        While it is written again, distribution shows nothing of it.
        """
        own = _descriptor(kind, sha256(data), len(data))
        if not again(lambda: self._has(f"manifests/{own['digest']}", Accept=kind)):
            self.put(own["digest"], data, kind)
        return own

    def _has(self, place: str, **headers: str) -> bool:
        url = self._oci.url(self._repo_id, place)
        try:
            with self._http.request(self._repo_id, url, headers, method="HEAD"):
                return True
        except NotPublishedError:
            return False


def write_layer(
    names: Mapping[str, str], contents: Mapping[str, Path], out: IO[bytes]
) -> dict[str, RemoteFile]:
    """Write files as a tar, metadata.json first: the same bytes for the same files.

    Args:
        names: hex SHA-256 of each file by its path in the tar.
        contents: the files, by hex SHA-256.

    Returns:
        The files with the positions of their content in the tar.
    """
    placed = {}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(names, key=lambda name: (name != FILE, name)):
            path, info = contents[names[name]], tarfile.TarInfo(name)
            refuse_changed(path, names[name])
            info.size = path.stat().st_size
            with path.open("rb") as stream:
                archive.addfile(info, stream)
            start = out.tell() - -(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
            placed[name] = RemoteFile(size=info.size, blob=names[name], offset=start)
    return placed


def _document(kind: str, **fields: object) -> bytes:
    """A manifest or index.

    An index has the fields and the form that skopeo writes: a copy of a release has the same
    commit. So it has no ``artifactType``, which its manifests have.
    """
    document = {"schemaVersion": 2, "mediaType": kind, **fields}
    return json.dumps(document, separators=(",", ":")).encode()


def _descriptor(kind: str, digest: str, size: int) -> Descriptor:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _moved(repo_id: str, tag: str) -> MovedError:
    return MovedError(f"another process published {repo_id} {tag} at once", hint="publish again")
