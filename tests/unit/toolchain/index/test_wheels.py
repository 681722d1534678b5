# SPDX-License-Identifier: Apache-2.0
"""Fetching wheels and trees from a real index over HTTP."""

import hashlib
import threading
from dataclasses import replace

import pytest
from support.wheel_maker import make_wheel

from kernforge.errors import IntegrityError, ToolchainError
from kernforge.store.local import Store
from kernforge.toolchain import projects
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.pip_config import PipConfig
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.lockfile import LockedCompiler, Tree, from_json
from kernforge.toolchain.provision import Toolchains
from kernforge.toolchain.resolver import make

TORCH = "torch-2.10.0-3-cp310-cp310-manylinux_2_28_x86_64.whl"
HEADERS = {"torch/include/ATen/ATen.h": b"// ATen", "torch/include/torch/library.h": b"// lib"}
COMPILER = LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")


@pytest.fixture
def torch_wheel(index_server):
    members = {"torch/lib/libtorch_cuda.so": b"\0" * 1000, **HEADERS}
    return index_server.add_wheel(TORCH, members)


def lock_torch(wheels):
    return make([Tree("torch", "2.10")], wheels, cpu="x86_64", compilers={"cxx": COMPILER})


def test_a_lock_of_torch_pins_the_record_and_names_no_host(wheels, torch_wheel, index_server):
    lock = lock_torch(wheels)
    assert lock.trees["torch-2.10"].wheels[0].file == TORCH
    assert (
        lock.trees["torch-2.10"].wheels[0].sha256
        == hashlib.sha256(torch_wheel.read_bytes()).hexdigest()
    )
    assert index_server.url not in lock.to_json()
    assert "127.0.0.1" not in lock.to_json()
    assert from_json(lock.to_json()) == lock


def test_the_newest_patch_release_and_build_is_locked(wheels, torch_wheel, index_server):
    for older in (
        "torch-2.10.0-cp310-cp310-manylinux_2_28_x86_64.whl",
        TORCH.replace("3-", "1-", 1),
    ):
        index_server.add_wheel(older, HEADERS)
    cpu_only = "torch-2.10.1+cpu-cp310-cp310-manylinux_2_28_x86_64.whl"
    index_server.add_wheel(cpu_only, HEADERS)
    assert lock_torch(wheels).trees["torch-2.10"].wheels[0].file == TORCH


def test_headers_arrive_alone_and_stay(toolchains, wheels, torch_wheel, index_server):
    locked = lock_torch(wheels).trees["torch-2.10"]
    tree = toolchains.path(locked)
    found = {p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file()}
    assert found == {"include/ATen/ATen.h", "include/torch/library.h"}
    requests = len(index_server.requests)
    assert toolchains.path(locked) == tree
    assert len(index_server.requests) == requests


def test_a_server_without_ranges_gives_the_same_headers(
    toolchains, wheels, torch_wheel, index_server, progress
):
    index_server.ranges = False
    tree = toolchains.path(lock_torch(wheels).trees["torch-2.10"])
    assert (tree / "include/ATen/ATen.h").read_bytes() == b"// ATen"
    assert any("whole wheel" in note for note in progress.notes)


def test_a_replaced_wheel_is_refused(toolchains, wheels, torch_wheel, index_server):
    tree = lock_torch(wheels).trees["torch-2.10"]
    other = replace(tree, wheels=(replace(tree.wheels[0], record="0" * 64),))
    with pytest.raises(IntegrityError, match="its RECORD has sha256"):
        toolchains.path(other)
    assert not list((toolchains._store.root / "toolchains").rglob("include"))


def test_a_tampered_header_is_refused_and_nothing_is_stored(toolchains, wheels, index_server):
    index_server.add_wheel(TORCH, HEADERS, tampered=("torch/include/torch/library.h",))
    tree = lock_torch(wheels).trees["torch-2.10"]
    with pytest.raises(IntegrityError, match=r"torch/include/torch/library\.h"):
        toolchains.path(tree)
    assert not list((toolchains._store.root / "toolchains").rglob("*.h"))


def test_a_whole_wheel_with_another_hash_is_refused(wheels, index_server):
    path = make_wheel(index_server.root / "files" / "kit-1.0-py3-none-any.whl", {"a": b"a"})
    index_server.add(path, sha256="0" * 64)
    with pytest.raises(IntegrityError, match="was promised"):
        wheels.whole(path.name, "0" * 64)


def test_the_index_contradicting_the_lock_is_reported(wheels, index_server):
    path = index_server.add_wheel("kit-1.0-py3-none-any.whl", {"a": b"a"})
    with pytest.raises(ToolchainError, match="the lock says sha256 1111"):
        wheels.whole(path.name, "1" * 64)


def test_a_wheel_that_no_index_lists_is_reported(wheels):
    with pytest.raises(ToolchainError, match="no configured package index lists it"):
        wheels.whole("kit-1.0-py3-none-any.whl", "1" * 64)


def test_many_threads_make_a_tree_once(toolchains, wheels, torch_wheel, index_server):
    tree = lock_torch(wheels).trees["torch-2.10"]
    requests = len(index_server.requests)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(toolchains.path(tree))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 8
    assert len(index_server.requests) - requests <= 2


def test_a_link_page_on_this_machine_needs_no_network(tmp_path, transport, index_server, progress):
    path = make_wheel(tmp_path / "links" / "kit-1.0-py3-none-any.whl", {"a": b"a"})
    config = index_server.config.__class__(index_urls=(), find_links=(str(path.parent),))
    wheels = Wheels(lambda: Index(config, transport), tmp_path / "downloads", progress)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert dict(wheels.whole(path.name, sha256).fetch(["a"])) == {"a": b"a"}
    assert path.is_file()


@pytest.mark.parametrize("where", ["directory", "page", "index"])
def test_a_wheel_listed_without_a_hash_is_pinned_by_its_sha256(
    torch_wheel, index_server, transport, tmp_path, *, progress, monkeypatch, where
):
    """Its release is known, and its lock serves at an index that gives hashes."""
    sha256 = hashlib.sha256(torch_wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(projects, "known_hashes", lambda: {TORCH: sha256})
    page = index_server.root / "simple/torch/index.html"
    with_hashes = page.read_text()
    page.write_text(f'<a href="/files/{TORCH}">{TORCH}</a>')
    links = {"directory": str(torch_wheel.parent), "page": str(page.with_name("links.html"))}
    page.with_name("links.html").write_text(f'<a href="{torch_wheel.as_uri()}">{TORCH}</a>')
    config = index_server.config
    if where in links:
        config = PipConfig(index_urls=(), find_links=(links[where],))
    wheels = Wheels(lambda: Index(config, transport), tmp_path / "downloads", progress)
    locked = lock_torch(wheels).trees["torch-2.10"]
    assert locked.wheels[0].sha256 == sha256
    assert locked.wheels[0].record
    page.write_text(with_hashes)
    other = Wheels(lambda: Index(index_server.config, transport), tmp_path / "other", progress)
    for name, source in (("first", wheels), ("second", other)):
        tree = Toolchains(Store(tmp_path / name), source).path(locked)
        assert (tree / "include/ATen/ATen.h").read_bytes() == b"// ATen"


@pytest.mark.parametrize("where", ["server", "file"])
def test_a_page_of_links_is_read_as_pip_reads_it(
    tmp_path, transport, index_server, progress, where
):
    """As https://download.example/torch_stable.html: files of many projects on one page."""
    files = [
        make_wheel(index_server.root / "wheels" / f"{name}-py3-none-any.whl", {"a": name.encode()})
        for name in ("kit-1.0", "kit_more-1.0", "other-2.0")
    ]
    page = index_server.root / "links.html"
    page.write_text("".join(f'<a href="wheels/{path.name}">{path.name}</a>' for path in files))
    link = f"{index_server.url}/links.html" if where == "server" else str(page)
    config = index_server.config.__class__(index_urls=(), find_links=(link,))
    wheels = Wheels(lambda: Index(config, transport), tmp_path / "downloads", progress)
    assert [wheel.file for wheel in wheels.index.wheels("kit")] == [files[0].name]
    assert dict(wheels.whole(files[0].name, "").fetch(["a"])) == {"a": b"kit-1.0"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not a toolchain lock"),
        ("[]", "is not a toolchain lock"),
        ('{"lock-version": 9}', "has lock-version 9"),
        ('{"lock-version": 1}', "has lock-version 1"),
        ('{"lock-version": 2, "compilers": {}}', "is not a toolchain lock"),
    ],
)
def test_a_damaged_lock_is_refused(text, said):
    with pytest.raises(ToolchainError, match=said):
        from_json(text)
