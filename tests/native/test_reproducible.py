# SPDX-License-Identifier: Apache-2.0
"""Same sources and lock, same bytes: elsewhere, later, for another user, isolated or not."""

import hashlib
import json
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import pytest
from support import projects, trees
from support.programs import run

import kernforge
from kernforge.builder import provenance
from kernforge.store.local import Store
from kernforge.toolchain.provision import STORE_KIND

pytestmark = pytest.mark.native

CUDA = "torch-stable-abi210-cu130-x86_64-linux"
# All that could carry a path, a process number or a time into the result.
SECOND = """
[kernel.again]
backend = "cuda"
depends = []
src = ["again/times_two.cu", "times_two.h"]
cuda-capabilities = ["9.0"]
cuda-flags = ["-lineinfo"]
"""
AGAIN = """#include <cub/block/block_reduce.cuh>
#include "../times_two.h"
namespace {
__device__ int calls;
template <typename T> __global__ void internal(T* x) {
  using Reduce = cub::BlockReduce<T, 128>;
  __shared__ typename Reduce::TempStorage storage;
  T sum = Reduce(storage).Sum(x[threadIdx.x]);
  if (threadIdx.x == 0) x[0] = sum, ++calls;
}
}  // namespace
static __global__ void also_internal(float* x) { x[threadIdx.x] *= 2; }
extern "C" const char* where() { return __FILE__ " " __DATE__ " " __TIME__; }
void again(float* x) {
  internal<float><<<1, 128>>>(x);
  also_internal<<<1, 32>>>(x);
}
"""
CPP = projects.CPP + 'extern "C" const char* where() { return __FILE__ __DATE__ __TIME__; }\n'


def write(root: Path) -> Path:
    projects.write(root, backends=("cpu", "cuda"), cpp=CPP)
    (root / "build.toml").write_text((root / "build.toml").read_text() + SECOND)
    (root / "again").mkdir()
    (root / "again" / "times_two.cu").write_text(AGAIN)
    return root


def build(
    root: Path, home: Path, *options: str, prefix: tuple[str, ...] = (), **env: str
) -> dict[str, bytes]:
    """Build in a home that has the toolchains and no results; every file by its path."""
    argv = (*(prefix or (sys.executable, "-m", "kernforge")), "build", root, *options)
    done = run((*argv, "--no-check", "--json"), **env, KERNFORGE_HOME=home)
    assert json.loads(done.stdout)["actions"]["reused"] == 0
    out = root / "build"
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def bare(kept_home, tmp_path_factory):
    """Makes homes that have toolchains and no results."""

    def make() -> Path:
        home = tmp_path_factory.mktemp("home")
        (home / "store").mkdir()
        (home / "store" / "toolchains").symlink_to(kept_home / "store" / "toolchains")
        return home

    (kept_home / "store" / "toolchains").mkdir(parents=True, exist_ok=True)
    return make


@pytest.fixture(scope="module")
def first(bare, tmp_path_factory):
    """Files, lock and home of a build."""
    root, home = write(tmp_path_factory.mktemp("first") / "project"), bare()
    return build(root, home, "--sandbox", "required"), root / "kernforge.lock", home


def again(first, root: Path) -> Path:
    write(root)
    shutil.copy(first[1], root / "kernforge.lock")
    return root


def taken(home: Path) -> list[str]:
    """Keys of the toolchain's trees that the builds of a home took."""
    marks = (home / "store" / "used").glob(f"{STORE_KIND}-*")
    return sorted(mark.name.partition("-")[2] for mark in marks)


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return [path for path in sorted({*one, *other}) if one.get(path) != other.get(path)]


def test_bytes_do_not_depend_on_paths_jobs_or_mtimes(first, bare, tmp_path):
    root = again(first, tmp_path / "a rather longer" / "path")
    home = bare()
    # Of what that build took: other tests may be fetching another just now.
    reduce = Path("include/cccl/cub/block/block_reduce.cuh")
    toolchains = Store(home / "store")
    places = [toolchains.path(STORE_KIND, key) for key in taken(first[2])]
    tree = next(place for place in places if (place / reduce).is_file())
    reduce = tree / reduce
    for path in (reduce, tree, root / "again" / "times_two.cu"):
        os.utime(path, (time.time() - 10**8, time.time() - 10**8))
    assert differing(first[0], build(root, home, "--jobs", "1")) == []


def test_without_a_sandbox_only_the_statement_differs(first, bare, tmp_path):
    root = again(first, tmp_path / "project")
    found = build(root, bare(), "--sandbox", "off")
    names = {Path(path).name for path in differing(first[0], found)}
    assert names == {"metadata.json", provenance.FILE}
    statement = provenance.read(found[f"{CUDA}/{provenance.FILE}"].decode())
    assert statement.sandbox["isolation"] == "none"
    # Every intermediate file is the same too.
    isolated = provenance.read(first[0][f"{CUDA}/{provenance.FILE}"].decode())
    assert [a.outputs for a in statement.actions] == [a.outputs for a in isolated.actions]


@pytest.mark.parametrize("mode", ["required", "off"])
def test_another_user(first, kept_home, mode):
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        base.chmod(0o755)
        nobody, env = somebody_else(base)
        # Root's home may be closed to others, so the toolchains that it takes get another name.
        kept, other = Store(kept_home / "store"), Store(base)
        for key in taken(first[2]):
            place = other.path(STORE_KIND, key)
            place.parent.mkdir(parents=True, exist_ok=True)
            trees.link_tree(kept.path(STORE_KIND, key), place)
        home, root = base / "home" / "store", again(first, base / "project")
        home.mkdir(parents=True)
        (home / "toolchains").symlink_to(base / "toolchains")
        for path in (base / "home", *(base / "home").rglob("*"), root, *root.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        nobody = (*nobody, "-m", "kernforge")
        found = build(root, base / "home", "--sandbox", mode, prefix=nobody, **env)
        names = {Path(path).name for path in differing(first[0], found)}
        # A Python of another patch release brings other headers, and the statement says so.
        told = mode == "off" or python_of(first[0]) != python_of(found)
        assert names == ({"metadata.json", provenance.FILE} if told else set())


def python_of(files: dict[str, bytes]) -> object:
    return provenance.read(files[f"{CUDA}/{provenance.FILE}"].decode()).lock.trees.get("python")


def somebody_else(base: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """What starts a Python as the user nobody, and the environment that it needs."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root can become another user, with setpriv")
    become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
    source = Path(kernforge.__file__).parents[1]
    env = {"PYTHONPATH": f"{source}:{sysconfig.get_path('purelib')}", "HOME": str(base)}
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, f"/usr/bin/python{version}"):
        argv = (*become, "env", python, "-c", "import pydantic, kernforge.cli.main")
        if not run(argv, expect=None, **env).returncode:
            return (*become, "env", python), env
    pytest.skip("no Python here may be started by another user")


def test_an_artifact_holds_no_path_time_or_pid(first):
    words = (f"{Path.home()}/", "/pytest-", "tmpxft", "/store/", time.strftime("%b %e %Y"))
    for path, data in first[0].items():
        for word in words:
            assert word.encode() not in data, f"{word} in {path}"


def test_the_statement_names_every_file_and_wheel(first):
    files = {p.partition("/")[2]: d for p, d in first[0].items() if p.startswith(CUDA)}
    document = json.loads(files[provenance.FILE])
    subjects = {one["name"]: one["digest"]["sha256"] for one in document["subject"]}
    others = {p: d for p, d in files.items() if p not in {"metadata.json", provenance.FILE}}
    assert subjects == {path: hashlib.sha256(data).hexdigest() for path, data in others.items()}
    named = {d["name"] for d in document["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert any(name.startswith("nvidia_cuda_nvcc-13.0") for name in named)
    assert any(name.startswith("torch-2.10") for name in named)
    assert "host compiler" in named


def test_an_unsandboxed_shared_result_is_replaced(bare, tmp_path):
    root = projects.write(tmp_path / "project")
    far = f"file://{tmp_path}/far"

    def shared(mode):
        """Build in a new home; how many actions ran, and what the statement says of them."""
        home, out = bare(), tmp_path / "out"
        argv = [sys.executable, "-m", "kernforge", "build", root, "--build-dir", out]
        argv += ["--sandbox", mode, "--no-check", "--json"]
        trust = {"KERNFORGE_STORE_TRUST": "all-writers", "KERNFORGE_SHARED_STORE": far}
        done = run(argv, KERNFORGE_HOME=home, **trust)
        (statement,) = out.glob("*/provenance.intoto.json")
        isolation = provenance.read(statement.read_text()).sandbox["isolation"]
        return json.loads(done.stdout)["actions"]["ran"], isolation, done.stderr

    all_of_them, isolation, _ = shared("off")
    assert (all_of_them > 5, isolation) == (True, "none")
    assert shared("off")[:2] == (0, "none")
    ran, isolation, said = shared("required")
    assert (ran, isolation) == (all_of_them, "namespaces")
    assert f"{all_of_them} results of the shared store were made without a sandbox" in said
    assert shared("required")[:2] == (0, "namespaces")
    assert shared("off")[:2] == (0, "namespaces")
