# SPDX-License-Identifier: Apache-2.0
"""``kernforge shell --with-torch``: real environments by uv and venv, of an index with a small torch."""

import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from support import projects
from support.wheel_maker import make_wheel

from kernforge.artifact.version import Version2
from kernforge.errors import ToolchainError
from kernforge.export import torch_environment
from kernforge.export.torch_environment import TorchRequest
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system import process
from kernforge.system.environment import Environment
from kernforge.toolchain.installed import TorchHere

pytestmark = pytest.mark.native

HERE = sysconfig.get_python_version()
RELEASE = Version2(2, 12)


@pytest.fixture
def index(index_server):
    """An index with packages that are only their versions; ``torch`` is for CUDA 13.0."""
    for name, release in (
        ("torch", "2.12.1"),
        ("torch", "2.11.0"),
        ("numpy", "2"),
        ("pytest", "9"),
    ):
        module = f'__version__ = "{release}"\ncuda: str | None = "13.0"\n'.encode()
        about = f"{name}-{release}.dist-info"
        members = {
            f"{name}/__init__.py": b"from .version import __version__\n",
            f"{name}/version.py": module,
            f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n".encode(),
            f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        file = index_server.root / f"{name}-{release}-py3-none-any.whl"
        index_server.add(make_wheel(file, members))
    return index_server


@pytest.fixture
def provide(index, tmp_path, monkeypatch):
    """Provide an environment; returns its ``python``, or the error."""
    for name in ("PIP_FIND_LINKS", "PIP_CONSTRAINT", *torch_environment.UV_INDEX):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": f"{index.url}/simple",
        "KERNFORGE_HOME": str(tmp_path / "home"),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "PIP_CACHE_DIR": str(tmp_path / "pip"),
    }.items():
        monkeypatch.setenv(name, value)

    def start(run=process.run, here=None, **fields):
        wanted = TorchRequest(
            **{
                "torch": RELEASE,
                "newer": False,
                "cuda": None,
                "python": HERE,
                "packages": ("numpy", "pytest"),
                "index": "",
                **fields,
            }
        )
        return torch_environment.provide(wanted, Environment.read(), run, notes.append, here=here)

    notes = start.notes = []
    return start


def without_uv(command):
    """Start programs on a machine that has no uv."""
    if command.argv[0] == "uv":
        raise FileNotFoundError(2, "no such program", "uv")
    return process.run(command)


def versions(python):
    script = "import torch, numpy, sys; print(torch.__version__, numpy.__file__, sys.prefix)"
    done = process.run(process.Command(argv=(str(python), "-c", script)))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("run", [process.run, without_uv], ids=["uv", "venv"])
def test_an_environment_is_made_once_and_kept(provide, run, tmp_path):
    python = provide(run)
    release, numpy, prefix = versions(python)
    assert release == "2.12.1"
    assert Path(prefix) == python.parent.parent
    assert numpy.startswith(prefix)
    assert len(provide.notes) == 1

    def never(command):
        raise AssertionError(command)

    mark = python.parent.parent / eviction.ENVIRONMENT_USED
    os.utime(mark, (0, 0))
    assert provide(never) == python
    assert mark.stat().st_mtime > 0, "it is younger now than others"
    store = Store(tmp_path / "home" / "store")
    (kept,) = eviction.environments(store)
    assert kept.path == python.parent.parent
    with store.lease():
        assert provide(never) == python
        assert eviction.clear(store, "environments").kept == 1
    assert provide(run, torch=Version2(2, 11)) != python
    assert eviction.clear(store, "environments").entries == 2
    assert versions(provide(run))[0] == "2.12.1"


def test_the_torch_that_is_here_is_taken_if_it_fits(provide):
    here = TorchHere(version=Version2(2, 13), cuda=Version2(13, 0))
    own = Path(sys.executable)

    def never(command):
        raise LookupError(command)

    assert provide(never, here, torch=Version2(2, 13)) == own
    assert provide(never, here, torch=Version2(2, 10), newer=True) == own
    assert provide(never, here, torch=Version2(2, 13), cuda=Version2(13, 0)) == own
    for other in (
        {"torch": Version2(2, 12)},
        {"torch": Version2(2, 14), "newer": True},
        {"torch": Version2(2, 13), "cuda": Version2(12, 6)},
        {"torch": Version2(2, 13), "python": "3.9"},
    ):
        with pytest.raises(LookupError):
            provide(never, here, **other)


def test_another_build_of_torch_is_refused_and_nothing_is_kept(provide, tmp_path):
    with pytest.raises(
        ToolchainError, match=r"torch 2\.12 for CUDA 13\.0, and the variant is for CUDA 12\.6"
    ) as raised:
        provide(cuda=Version2(12, 6))
    assert "--torch-index" in raised.value.hint
    assert not [path for path in (tmp_path / "home" / "environments").iterdir() if path.is_dir()]
    assert versions(provide(cuda=Version2(13, 0)))[0] == "2.12.1"


def test_a_torch_that_no_index_has_is_the_programs_own_words(provide):
    with pytest.raises(ToolchainError, match=r"torch==1\.0") as raised:
        provide(torch=Version2(1, 0))
    assert "--python" in raised.value.hint


def test_a_named_index_has_torch_alone(provide, index, monkeypatch):
    for name in ("numpy", "pytest"):
        shutil.copytree(index.root / "simple" / name, index.root / "other" / "simple" / name)
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/other/simple")
    with pytest.raises(ToolchainError):
        provide()
    assert versions(provide(index=f"{index.url}/simple"))[0] == "2.12.1"


def test_without_uv_another_python_must_be_there(provide, monkeypatch, tmp_path):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"Python 3\.4 is not on this machine") as raised:
        provide(without_uv, python="3.4")
    assert "install uv" in raised.value.hint


@pytest.mark.torch
def test_the_shell_has_the_torch_that_is_here(kernforge_cli, tmp_path):
    pytest.importorskip("torch")
    root = projects.write(tmp_path / "p", backends=("cpu",))
    shell = ("shell", "--project", root, "--variant", "torch-stable-abi*-cpu-*", "--with-torch")
    kernforge_cli("build", root, "--variant", "torch-stable-abi*-cpu-*")
    script = "import sys, torch, times_two; print(sys.executable); print(times_two.__file__)"
    executable, package = kernforge_cli(*shell, "--", "python", "-c", script).stdout.split()
    assert Path(executable).parent == Path(sys.executable).parent
    assert "times_two" in package
    said = json.loads(kernforge_cli(*shell, "--json").stdout)
    assert said["python"] == sys.executable
    assert said["environment"]["PATH"].startswith(str(Path(sys.executable).parent))
    done = kernforge_cli("shell", "--project", root, "--python", "3.12", expect=2)
    assert "add --with-torch" in done.stderr
    done = kernforge_cli(*shell, "--python", "12", expect=2)
    assert "write it like 3.12" in done.stderr
