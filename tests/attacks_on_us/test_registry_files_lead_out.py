# SPDX-License-Identifier: Apache-2.0
"""Files of a copied registry or variant that lead elsewhere or have no end, at every door."""

import os
import re
import shutil
from pathlib import Path

import pytest
from support.commands import call
from support.pages import client

import kernforge
from kernforge.errors import KernforgeError
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

REPO = "acme/toy"
MARK = "private text of the host"
READERS = ("artifact", "audit", "check", "loader", "publish", "registry", "serve", "trust")
# They read files of the user, of kernforge itself, or files whose tree was verified.
OTHERS = {
    *("artifact/integrity.py", "audit/reproduce.py", "check/abi_rules.py", "check/api.py"),
    *(
        "loader/lock.py",
        "publish/oci.py",
        "registry/hub.py",
        "registry/listing.py",
        "serve/access.py",
    ),
    *("serve/pages.py", "trust/admission.py", "trust/signing.py"),
}


@pytest.fixture
def variant(tmp_path, write_variant, monkeypatch):
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNFORGE_SIGN_PASSPHRASE", "")
    return write_variant(tmp_path / "build", variant="torch-universal", name="toy", version=1)


@pytest.fixture
def registry(tmp_path, variant):
    found = DirectoryRegistry(tmp_path / "registry")
    publish(variant, found, REPO, card="# Toy")
    return found


DOORS = {
    "info": lambda r: call("info", REPO, "--registry", r.root),
    "verify": lambda r: call("verify", REPO, "--registry", r.root),
    "check": lambda r: call("check", REPO, "--registry", r.root),
    "get": lambda r: call(
        "get", REPO, "--version", "1", "--registry", r.root, "--to", r.root.parent / "to"
    ),
    "mirror": lambda r: call("mirror", r.root, r.root.parent / "copy", REPO),
    "load": lambda r: kernforge.get_kernel(
        REPO, version=1, registry=str(r.root), trust_remote_code=True
    ),
}
PLACES = ("", "/snapshots", "/snapshots/*", "/snapshots/*/build", "/snapshots/*/build/*", "/refs")


def lead_out(registry, place):
    """Move a directory of a kernel elsewhere, and leave a link to it; returns its commit."""
    commit = registry.ref(REPO, "v1")
    (real,) = registry.root.glob(f"kernels--acme--toy{place}")
    outside = registry.root.parent / "outside"
    shutil.copytree(real, outside, symlinks=place == "")
    shutil.rmtree(real)
    real.symlink_to(outside)
    return commit


@pytest.mark.parametrize("door", DOORS)
def test_directory_that_leads_out_of_a_kernel_is_refused(registry, door, capsys):
    lead_out(registry, "/snapshots/*")
    try:
        assert DOORS[door](registry)
        text = capsys.readouterr().err
    except KernforgeError as error:
        text = str(error)
    assert "is a link that leaves" in text


@pytest.mark.parametrize("place", PLACES)
def test_server_shows_nothing_that_leads_out(registry, place):
    lead_out(registry, place)
    (registry.root.parent / "outside" / "README.md").write_text(MARK)
    server = client(registry)
    commit = DirectoryRegistry(registry.root).commits(REPO) if place == "/refs" else ["v1"]
    for path in (
        f"/kernels/{REPO}",
        f"/api/kernels/{REPO}/tree/{commit[0]}?recursive=true",
        f"/api/kernels/{REPO}/revision/{commit[0]}",
        f"/kernels/{REPO}/resolve/{commit[0]}/README.md",
    ):
        text = server.get(path).text
        assert MARK not in text
        assert "README.md" not in text.replace(path, "")
        assert "__init__.py" not in text


ENDLESS = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "large": lambda path: path.touch() or os.truncate(path, 1 << 40),
}
COMMANDS = ("info", "verify", "check", "sign", "publish", "load")


@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("metadata.json", kind) for kind in ENDLESS), ("metadata.json.sigstore", "pipe")],
)
@pytest.mark.parametrize("door", COMMANDS)
def test_document_without_end_is_refused(variant, door, name, kind, capsys):
    tmp_path = variant.parents[1]
    assert call("sign", "--new-key", tmp_path / "key") == 0
    (variant / name).unlink(missing_ok=True)
    ENDLESS[kind](variant / name)
    try:
        if door == "load":
            kernforge.get_local_kernel(variant.parent, trust_remote_code=True)
        elif door == "publish":
            publish(variant, DirectoryRegistry(tmp_path / "registry"), REPO)
        else:
            key = ("--key", tmp_path / "key") if door == "sign" else ()
            call(door, variant.parent, *key)
        text = "".join(capsys.readouterr())
    except KernforgeError as error:
        text = str(error)
    assert re.search("not a (regular )?file|is a link that (leaves|does not lead)", text)


def test_nothing_else_reads_files_of_a_registry():
    reads = re.compile(r"\.read_(?:bytes|text)\(|(?<![\w. ])open\(| open\((?!self)|\.open\(.rb")
    package = Path(kernforge.__file__).parent
    sources = (path for folder in READERS for path in (package / folder).rglob("*.py"))
    found = {p.relative_to(package).as_posix() for p in sources if reads.search(p.read_text())}
    assert found == OTHERS
