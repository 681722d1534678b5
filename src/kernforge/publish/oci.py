# SPDX-License-Identifier: Apache-2.0
"""Publish to a registry of the OCI distribution protocol; ``registry.oci`` has the layout.

The layers are written first, then the signatures as referrers, and the manifest under its tags
last: ``vX.Y.Z``, then ``v<major>`` and ``main``. What an interrupted publication left is garbage
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
import io
import json
import os
import tarfile
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from kernforge.artifact.metadata import FILE, SIGNATURE
from kernforge.errors import MovedError, NotPublishedError
from kernforge.publish.destination import Destination, refuse_changed
from kernforge.registry.listing import RemoteFile, folder_of, write_listing
from kernforge.registry.names import branches
from kernforge.registry.oci import FILES, INDEX, MANIFEST, OciTransport
from kernforge.system import files, untrusted
from kernforge.system.digest import sha256
from kernforge.system.http import again, following

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kernforge.publish.destination import Release
    from kernforge.registry.remote import RemoteRegistry

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_KERNEL = "application/vnd.kernforge.kernel.v1"
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
        """Write the layers, the signatures, and the manifest under its tag."""
        upload = _Upload(self._oci, repo_id)
        layers: list[Descriptor] = []
        listing: dict[str, RemoteFile] = {}
        with self.with_card(release) as whole:
            folders: dict[str, list[str]] = {}
            for path in sorted(whole.tree):
                folder = folder_of(path) if path.startswith("build/") else ""
                folders.setdefault(folder, []).append(path)
            for paths in folders.values():
                with files.scratch_file(self.registry.root) as tar:
                    placed = write_layer(paths, whole, tar)
                    layers.append(upload.blob(tar, _LAYER))
                layer = layers[-1]["digest"].removeprefix("sha256:")
                listing |= {path: replace(file, pack=layer) for path, file in placed.items()}
            manifest = _document(
                MANIFEST,
                artifactType=_KERNEL,
                config=upload.blob(io.BytesIO(b"{}"), _EMPTY),
                layers=layers,
                annotations={FILES: write_listing(listing)},
            )
            signed = [path for path in whole.tree if path.endswith(f"/{SIGNATURE}")]
            upload.refer(manifest, {path: whole.files[whole.tree[path]] for path in signed})
        commit = sha256(manifest)
        if commit != self.known.get(release.reference):
            upload.put(release.reference, manifest, MANIFEST, create=release.version is not None)
        return commit

    def finish(self, repo_id: str, release: Release, commit: str) -> bool:
        """Make ``v<major>`` and ``main`` the newest versions.

        It ends when all is as the tags say: another publisher may do the same at once.
        """
        upload = _Upload(self._oci, repo_id)
        for done in range(_ROUNDS):
            refs = self.refs(repo_id)
            if refs.get(release.reference) != commit:
                break
            wanted = branches(refs).items()
            stale = {name: each for name, each in wanted if refs.get(name) != each}
            if not stale:
                return done > 0
            for name, each in stale.items():
                manifest = again(functools.partial(self._oci.manifest, repo_id, each))
                upload.put(name, manifest or b"", MANIFEST)
        raise _moved(repo_id, release.reference)

    def url(self, repo_id: str, reference: str) -> str:
        """The repository with its tag."""
        return f"{self.registry.url}/{repo_id}:{reference}"


class _Upload:
    """Uploads to one repository."""

    def __init__(self, oci: OciTransport, repo_id: str) -> None:
        self._oci, self._repo_id, self._http = oci, repo_id, oci.http(repo_id)

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

    def blob(self, body: IO[bytes], kind: str) -> Descriptor:
        """Upload a blob, unless it is there; returns its descriptor."""
        size = body.seek(0, os.SEEK_END)
        body.seek(0)
        digest = hashlib.file_digest(body, "sha256").hexdigest()  # type: ignore[arg-type]
        there = self._oci.url(self._repo_id, f"blobs/sha256:{digest}")
        start = self._oci.url(self._repo_id, "blobs/uploads/")
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}

        def attempt() -> None:
            with (
                contextlib.suppress(NotPublishedError),
                self._http.request(self._repo_id, there, method="HEAD"),
            ):
                return
            with self._http.request(self._repo_id, start, method="POST", body=b"") as response:
                place = following(start, response.headers.get("Location", ""))
            url = f"{place}{'&' if '?' in place else '?'}digest=sha256:{digest}"
            with self._http.request(self._repo_id, url, headers, method="PUT", body=body):
                pass

        again(attempt)
        return _descriptor(kind, digest, size)

    def refer(self, manifest: bytes, bundles: Mapping[str, Path]) -> None:
        """Upload Sigstore bundles as referrers of a manifest, where cosign and its like find them.

        Args:
            bundles: by path in the release, which has them, too: copies of it have no referrers.
        """
        subject = _descriptor(MANIFEST, sha256(manifest), len(manifest))
        unlisted: list[Descriptor] = []
        for path, bundle in bundles.items():
            more = {
                "artifactType": BUNDLE,
                "annotations": {
                    "dev.sigstore.bundle.content": "message-signature",
                    "org.kernforge.signs": path.replace(SIGNATURE, FILE),
                },
            }
            config = self.blob(io.BytesIO(b"{}"), _EMPTY)
            layers = [self.blob(io.BytesIO(bundle.read_bytes()), BUNDLE)]
            referrer = _document(MANIFEST, config=config, layers=layers, subject=subject, **more)
            own = _descriptor(MANIFEST, sha256(referrer), len(referrer))
            if "OCI-Subject" not in self.put(own["digest"], referrer, MANIFEST):
                unlisted.append({**own, **more})
        if unlisted:
            # The registry knows no referrers: clients look for an index under this tag.
            tag = subject["digest"].replace(":", "-")
            index = again(lambda: self._oci.manifest(self._repo_id, tag))
            there = untrusted.parse_json(index)["manifests"] if index else []
            there += [each for each in unlisted if each not in there]
            self.put(tag, _document(INDEX, manifests=there), INDEX)


def write_layer(paths: Iterable[str], release: Release, out: IO[bytes]) -> dict[str, RemoteFile]:
    """Write files of a release as a tar: the same bytes for the same files.

    Returns:
        The files with the positions of their content in the tar.
    """
    placed = {}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            digest, info = release.tree[path], tarfile.TarInfo(path)
            file = release.files[digest]
            refuse_changed(file, digest)
            info.size = file.stat().st_size
            with file.open("rb") as stream:
                archive.addfile(info, stream)
            start = out.tell() - -(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
            placed[path] = RemoteFile(size=info.size, blob=digest, offset=start)
    return placed


def _document(kind: str, **fields: object) -> bytes:
    """A manifest or index."""
    document = {"schemaVersion": 2, "mediaType": kind, **fields}
    return json.dumps(document, separators=(",", ":")).encode()


def _descriptor(kind: str, digest: str, size: int) -> Descriptor:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _moved(repo_id: str, tag: str) -> MovedError:
    return MovedError(f"another process published {repo_id} {tag} at once", hint="publish again")
