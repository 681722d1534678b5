# SPDX-License-Identifier: Apache-2.0
"""A kernel that was published for another torch alone is built from its source where it is used."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from support import projects

import kernforge
from kernforge.builder import provenance
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system import files

pytestmark = pytest.mark.native

REPO = "owner/times-two"
# A seccomp filter (linux/filter.h) that refuses unshare: the machine has no user namespaces.
NO_SANDBOX = """
import ctypes, platform, struct
number = {"x86_64": 272, "aarch64": 97}[platform.machine()]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HP", len(rules), ctypes.addressof(filters))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
"""
USE = """
import sys, logging, torch, kernforge
logging.basicConfig(level=logging.WARNING)
kernel = kernforge.get_kernel("owner/times-two", version=1, build=True)
x = torch.arange(7.0)
assert torch.equal(kernel.times_two(x), 2 * x)
print(kernel.__file__, "kernforge.builder.api" in sys.modules)
"""


def series():
    """Torch's series here, and one that it is not."""
    here = "".join(torch.__version__.split(".")[:2])
    return here, "210" if here != "210" else "211"


@pytest.fixture(scope="module")
def shared(kept_home, tmp_path_factory, call):
    """Where a project of the full ABI is published, for another torch alone."""
    place = tmp_path_factory.mktemp("shared")
    files.make_dir(kept_home / "store/toolchains")
    files.symlink(str(kept_home / "store/toolchains"), place / "home/store/toolchains")
    # What its binding includes does not matter here, and ATen would be compiled in every test.
    root = projects.write(place / "project", stable=False, binding=projects.STABLE_BINDING)
    _, other = series()
    call(place, "-m", "kernforge", "build", root, "--variant", f"torch{other}-cxx11-cpu-*")
    call(place, "-m", "kernforge", "publish", root, "--repo-id", REPO)
    return place


@pytest.fixture
def place(shared, tmp_path):
    """The same in a place of the test's own."""
    shutil.copytree(shared, tmp_path / "place", symlinks=True)
    return tmp_path / "place"


@pytest.fixture(scope="module")
def call(forked):
    def start(place, *arguments, **more):
        more |= {"KERNFORGE_HOME": place / "home", "KERNFORGE_REGISTRY": place / "registry"}
        return forked(*arguments, PYTHONPATH=Path(kernforge.__file__).parents[1], **more)

    return start


def source_of(place):
    registry = DirectoryRegistry(place / "registry")
    return registry.folder(REPO, registry.ref(REPO, "v1"), "source")


def test_a_missing_variant_is_built_once(place, call):
    assert {path.name for path in source_of(place).iterdir()} == {
        *("build.toml", "kernforge.lock", "times_two.cpp", "times_two.cu", "times_two.h"),
        "torch-ext",
    }
    refused = call(place, "-c", USE.replace(", build=True", ""), expect=1)
    assert "needs torch 2." in refused.stderr
    assert "or pass build=True to get_kernel: its source and lock are published" in refused.stderr
    first = call(place, "-c", USE)
    assert "no published build of owner/times-two fits: it is built here, once" in first.stderr
    path, met_the_builder = first.stdout.split()
    assert met_the_builder == "True"
    assert Path(path).is_relative_to(place / "home/built")
    here, _ = series()
    assert Path(path).parent.name.startswith(f"torch{here}-cxx11-cpu-")
    second = call(place, "-c", USE)
    assert (second.stdout, second.stderr) == (first.stdout, "")
    assert not list((place / "home/built/work").iterdir())


def test_a_modified_source_is_refused(place, call):
    source = source_of(place) / "times_two.cpp"
    text = source.read_text()
    source.unlink()
    source.write_text(text.replace("2 *", "3 *"))
    refused = call(place, "-c", USE, expect=1)
    assert "IntegrityError: the source of owner/times-two is not" in refused.stderr


def test_published_source_is_built_in_a_sandbox_unless_it_is_trusted(place, call):
    refused = call(place, "-c", NO_SANDBOX + USE, expect=1)
    assert "ToolchainError: actions cannot be isolated on this machine" in refused.stderr
    assert not list((place / "home/built").glob("kernels--*/*/torch*"))
    call(place, "-c", NO_SANDBOX + USE, KERNFORGE_BUILD_TRUSTED="1")


def test_a_project_that_cannot_serve_this_machine_says_so(place, call):
    _, other = series()
    manifest = place / "project/build.toml"
    dotted = f"{other[0]}.{other[1:]}"
    bounds = f'[torch]\nminver = "{dotted}"\nmaxver = "{dotted}"'
    manifest.write_text(manifest.read_text().replace("[torch]", bounds))
    call(place, "-m", "kernforge", "build", place / "project", "--variant", f"torch{other}-cxx11-*")
    publish = ("-m", "kernforge", "publish", place / "project", "--repo-id", REPO)
    call(place, *publish, "--version", "1.1.0", "--with-source")
    refused = call(place, "-c", USE, expect=1)
    assert "NoVariantError: the source of owner/times-two has no variant for" in refused.stderr


def test_a_kernel_without_its_source_is_not_built(place, call):
    publish = ("-m", "kernforge", "publish", place / "project", "--repo-id", REPO)
    call(place, *publish, "--version", "1.1.0", "--no-with-source")
    assert source_of(place) is None
    refused = call(place, "-c", USE, expect=1)
    assert "build=True needs the kernel's source, which is not published" in refused.stderr


def test_without_an_index_the_installed_torch_is_the_fallback(place, call):
    (place / "home/store/toolchains").unlink()
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0",
    }
    done = call(place, "-c", USE, **nowhere)
    assert "this machine's own torch and compilers are used instead" in done.stderr
    path = Path(done.stdout.split()[0]).parent
    said = provenance.read((path / provenance.FILE).read_text(), source="")
    (torch_here,) = (tree for tree in said.lock.trees.values() if tree.kind == "torch")
    assert torch_here.release == torch.__version__
    assert not (place / "home/store/toolchains").exists()
