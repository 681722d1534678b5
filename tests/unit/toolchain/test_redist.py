# SPDX-License-Identifier: Apache-2.0
"""CUDA toolkits from archives on a real server, and from an installed directory."""

import hashlib
import io
import json
import os
import tarfile

import pytest

from kernforge.artifact.version import Version2
from kernforge.errors import IntegrityError, ToolchainError, UsageError
from kernforge.store.local import Store
from kernforge.system.process import run
from kernforge.toolchain.installed import identify_cuda
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import LockedCompiler, from_json, toolkit_key
from kernforge.toolchain.provision import Toolchains
from kernforge.toolchain.redist import Redist
from kernforge.toolchain.resolver import Needs, lacking, make

COMPILER = LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")
NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n"
COMPONENTS = {
    "cuda_nvcc": {"bin/nvcc": NVCC, "nvvm/bin/cicc": "#!/bin/sh\n", "LICENSE": "text"},
    "cuda_cudart": {"include/cuda_runtime.h": "//", "lib/libcudart_static.a": "!<arch>"},
    "cuda_cccl": {"include/cub/cub.cuh": "//"},
    "libcublas": {"include/cublas_v2.h": "//", "lib/libcublas.so.12": "huge"},
}
NEEDS = Needs(cuda=frozenset({"12.8"}), torch=frozenset(), libraries=True)


def archive(root, component, files):
    path = f"{component}/linux-x86_64/{component}-linux-x86_64-12.8.93-archive.tar.xz"
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / path, "w:xz") as opened:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{component}-linux-x86_64-12.8.93-archive/{name}")
            info.size, info.mode = len(text), 0o755 if text.startswith("#!") else 0o644
            opened.addfile(info, io.BytesIO(text.encode()))
    data = (root / path).read_bytes()
    return {
        "relative_path": path,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": str(len(data)),
    }


@pytest.fixture
def base(index_server):
    root = index_server.root / "redist"
    manifest = {"release_date": "2025-01-01"}
    for component, files in COMPONENTS.items():
        manifest[component] = {
            "version": "12.8.93",
            "linux-x86_64": archive(root, component, files),
        }
    for release in ("12.8.0", "12.8.1"):
        (root / f"redistrib_{release}.json").write_text(json.dumps(manifest))
    return root


@pytest.fixture
def redist(index_server, base, transport, tmp_path, progress):
    return Redist(f"{index_server.url}/redist", lambda: transport, tmp_path / "downloads", progress)


def lock_of(own):
    return make(NEEDS, None, cpu="x86_64", compiler=COMPILER, local_parts=own)


def test_the_newest_patch_release_is_pinned_by_hashes_without_a_host(redist, index_server):
    lock = lock_of(LocalParts(redist=redist))
    toolkit = lock.cuda["12.8"]
    assert toolkit.release == "12.8.1"
    assert [a.path.partition("/")[0] for a in toolkit.archives] == list(COMPONENTS)
    assert "127.0.0.1" not in lock.to_json()
    assert from_json(lock.to_json()) == lock
    assert not lacking(NEEDS, lock).names


def test_the_archives_become_one_tree(redist, tmp_path, index_server):
    own = LocalParts(redist=redist)
    toolkit = lock_of(own).cuda["12.8"]
    tree = Toolchains(Store(tmp_path / "store"), None, own).toolkit(toolkit)
    assert (tree / "bin/nvcc").stat().st_mode & 0o100
    assert (tree / "include/cublas_v2.h").is_file()
    assert (tree / "lib64/libcudart_static.a").is_file()
    assert not (tree / "lib/libcublas.so.12").exists()
    assert list((tmp_path / "downloads").glob("*.part")) == []
    # What is in the store needs no server.
    index_server.requests.clear()
    assert Toolchains(Store(tmp_path / "store"), None).toolkit(toolkit) == tree
    assert index_server.requests == []


def test_a_replaced_archive_is_refused_and_nothing_is_stored(redist, base, tmp_path):
    own = LocalParts(redist=redist)
    toolkit = lock_of(own).cuda["12.8"]
    archive(base, "cuda_cccl", {"include/cub/cub.cuh": "// evil"})
    store = Store(tmp_path / "store")
    with pytest.raises(IntegrityError, match="was promised"):
        Toolchains(store, None, own).toolkit(toolkit)
    assert not store.has("toolchains", toolkit_key(toolkit))


def test_an_archive_cannot_write_outside_its_tree(redist, base, tmp_path):
    files = COMPONENTS["cuda_nvcc"] | {"../../../evil": "x"}
    entry = archive(base, "cuda_nvcc", files)
    path = base / "redistrib_12.8.1.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"cuda_nvcc": {"linux-x86_64": entry}})
    )
    own = LocalParts(redist=redist)
    with pytest.raises(IntegrityError, match="leads out of the tree"):
        Toolchains(Store(tmp_path / "store"), None, own).toolkit(lock_of(own).cuda["12.8"])
    assert not list(tmp_path.rglob("evil"))


def test_without_an_address_a_locked_archive_says_what_to_name(redist, tmp_path):
    toolkit = lock_of(LocalParts(redist=redist)).cuda["12.8"]
    with pytest.raises(ToolchainError) as caught:
        Toolchains(Store(tmp_path / "store"), None).toolkit(toolkit)
    assert "--cuda-redist" in caught.value.hint


def test_a_version_that_is_not_there_is_reported(redist):
    with pytest.raises(ToolchainError, match=r"no redistrib_12\.4"):
        redist.resolve(Version2(12, 4), "x86_64")


RELEASES = {"12.6.3": "12.6.85", "12.8.1": "12.8.93", "12.9.1": "12.9.86"}


@pytest.fixture
def mirror(index_server):
    """Manifests as NVIDIA writes them: several releases, each with several platforms."""
    root = index_server.root / "mirror"
    root.mkdir(parents=True)
    for release, version in RELEASES.items():
        manifest = {
            "release_date": "2025-06-01",
            "release_label": release,
            "release_product": "cuda",
        }
        for component in (*COMPONENTS, "cuda_gdb"):
            about = {"name": component, "license": "CUDA Toolkit", "version": version}
            about["license_path"] = f"{component}/LICENSE.txt"
            for platform in ("linux-x86_64", "linux-sbsa", "linux-aarch64", "windows-x86_64"):
                suffix = "zip" if platform.startswith("windows") else "tar.xz"
                file = f"{component}-{platform}-{version}-archive.{suffix}"
                text = f"{release} {component} {platform}".encode()
                about[platform] = {
                    "relative_path": f"{component}/{platform}/{file}",
                    "sha256": hashlib.sha256(text).hexdigest(),
                    "md5": "0" * 32,
                    "size": str(len(text)),
                }
            manifest[component] = about
        (root / f"redistrib_{release}.json").write_text(json.dumps(manifest))
    return root


@pytest.fixture
def at_mirror(mirror, index_server, transport, tmp_path, progress):
    address = f"{index_server.url}/mirror/"
    return Redist(address, lambda: transport, tmp_path / "downloads", progress)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("cpu", "platform"), [("x86_64", "linux-x86_64"), ("aarch64", "linux-sbsa")]
)
def test_each_release_is_found_for_each_processor(at_mirror, release, cpu, platform):
    found = at_mirror.resolve(Version2.leading(release), cpu)
    assert found.release == release
    assert [archive.path.split("/")[:2] for archive in found.archives] == [
        [component, platform] for component in COMPONENTS
    ]
    version = RELEASES[release]
    assert all(f"-{version}-archive.tar.xz" in archive.path for archive in found.archives)


def test_a_lock_holds_wherever_the_archives_lie(
    redist, index_server, transport, tmp_path, progress
):
    toolkit = lock_of(LocalParts(redist=redist)).cuda["12.8"]
    (index_server.root / "redist").rename(index_server.root / "elsewhere")
    moved = Redist(f"{index_server.url}/elsewhere", lambda: transport, tmp_path / "d", progress)
    own = LocalParts(redist=moved)
    tree = Toolchains(Store(tmp_path / "store"), None, own).toolkit(toolkit)
    assert (tree / "bin/nvcc").is_file()


def change(root, release, component, entry):
    path = root / f"redistrib_{release}.json"
    manifest = json.loads(path.read_text())
    manifest[component] = entry
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("component", "entry", "message"),
    [
        ("cuda_nvcc", {"windows-x86_64": {}}, "have no cuda_nvcc for linux-x86_64"),
        ("cuda_cudart", {}, "have no cuda_cudart for linux-x86_64"),
        ("cuda_nvcc", {"linux-x86_64": {"relative_path": "a/b"}}, "no 'sha256'"),
        ("cuda_nvcc", {"linux-x86_64": ["a/b"]}, "not a manifest"),
        (
            "cuda_nvcc",
            {"linux-x86_64": {"relative_path": "a/b", "sha256": "../../evil"}},
            "evil",
        ),
        (
            "cuda_nvcc",
            {"linux-x86_64": {"relative_path": "../b.tar.xz", "sha256": "0" * 64}},
            "cuda_nvcc names",
        ),
    ],
)
def test_a_component_that_cannot_be_had_is_reported(at_mirror, mirror, component, entry, message):
    change(mirror, "12.9.1", component, entry)
    with pytest.raises(ToolchainError, match=message):
        at_mirror.resolve(Version2(12, 9), "x86_64")


@pytest.mark.parametrize("text", ["[]", "<html>not here</html>", "null"])
def test_a_page_that_is_not_a_manifest_is_reported(at_mirror, mirror, text):
    (mirror / "redistrib_12.9.1.json").write_text(text)
    with pytest.raises(ToolchainError, match=r"redistrib_12\.9\.1\.json is not a manifest"):
        at_mirror.resolve(Version2(12, 9), "x86_64")


@pytest.fixture
def installed(tmp_path):
    root = tmp_path / "cuda"
    for files in COMPONENTS.values():
        for name, text in files.items():
            path = root / name.replace("lib/", "lib64/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (root / "bin/nvcc").chmod(0o755)
    (root / "version.json").write_text('{"cuda": {"version": "12.8.1"}}')
    return root


def test_an_installed_toolkit_is_used_where_it_is(installed, tmp_path):
    home = identify_cuda(installed, os.environ, run)
    assert (home.version, home.release) == (Version2(12, 8), "12.8.1")
    own = LocalParts(cuda_home=home)
    lock = lock_of(own)
    assert str(installed) not in lock.to_json()
    store = Store(tmp_path / "store")
    assert Toolchains(store, None, own).toolkit(lock.cuda["12.8"]) == installed
    with pytest.raises(ToolchainError, match="none is named here"):
        Toolchains(store, None).toolkit(lock.cuda["12.8"])


def test_a_changed_installation_is_another_toolkit(installed):
    own = LocalParts(cuda_home=identify_cuda(installed, os.environ, run))
    lock = lock_of(own)
    assert not lacking(NEEDS, lock, own).names
    (installed / "include/cub/cub.cuh").write_text("// longer than before")
    changed = LocalParts(cuda_home=identify_cuda(installed, os.environ, run))
    assert lacking(NEEDS, lock, changed).names == ("CUDA 12.8",)


def test_a_directory_without_a_compiler_is_refused(tmp_path):
    with pytest.raises(UsageError, match="bin/nvcc"):
        identify_cuda(tmp_path, os.environ, run)
