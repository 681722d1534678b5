# SPDX-License-Identifier: Apache-2.0
import os
import py_compile
import sys
from pathlib import Path

import pytest

import kernforge
from kernels import _rust as rust
from kernforge.errors import (
    IntegrityError,
    UsageError,
)
from kernforge.loader import importer
from kernforge.publish.api import publish
from kernforge.system import files

REPO = "owner/toy"
pytestmark = pytest.mark.usefixtures("machine")


def test_planted_bytecode_never_runs(registry, build):
    package = {"__init__.py": "from . import part\nVALUE = part.VALUE\n", "part.py": "VALUE = 1\n"}
    commit = publish(build(files=package), registry, REPO).commit
    path = registry.fetch(REPO, commit, "torch-cpu")
    (path / "__pycache__").mkdir()
    evil = compile("VALUE = 666", "part.py", "exec")
    source = os.stat(path / "part.py")  # noqa: PTH116 - as importlib asks
    loader = importer._SourceLoader("part", str(path / "part.py"))
    tag = sys.implementation.cache_tag
    cached = path / "__pycache__" / f"part.{tag}.pyc"
    from importlib._bootstrap_external import _code_to_timestamp_pyc  # noqa: PLC0415

    cached.write_bytes(_code_to_timestamp_pyc(evil, int(source.st_mtime), source.st_size))
    # Python's own loader would run it.
    assert super(type(loader), loader).get_code("part").co_consts[0] == 666
    assert kernforge.get_kernel(REPO, version=1).VALUE == 1
    assert sorted(p.name for p in path.rglob("*.pyc")) == [cached.name]


def test_an_extension_module_of_the_limited_api_loads(registry, tmp_path, write_variant):
    directory = tmp_path / "build/torch-stable-abi210-cpu-x86_64-linux"
    files.copy_file(Path(rust.__file__), directory / "_rust.abi3.so")
    write_variant(
        directory.parent,
        variant=directory.name,
        unique="ext0001",
        files={"__init__.py": "from . import _rust\nVERSION = _rust.__version__\n"},
    )
    publish(directory, registry, REPO)
    assert rust.__version__ == kernforge.get_kernel(REPO, version=1).VERSION


def test_planted_module_without_source_is_not_found(build):
    package = {
        "__init__.py": "try:\n    from . import fast\nexcept ImportError:\n    fast = None\n"
    }
    directory = build(files=package)
    (directory / "torch-cpu/fast.py").write_text("")
    py_compile.compile(
        str(directory / "torch-cpu/fast.py"), cfile=str(directory / "torch-cpu/fast.pyc")
    )
    (directory / "torch-cpu/fast.py").unlink()
    assert kernforge.get_local_kernel(directory).fast is None


def test_late_import_writes_no_bytecode(build):
    package = {
        "__init__.py": "def late():\n    from .deep import inner\n    return inner.VALUE\n"
        "def missing():\n    from . import nothing\n",
        "deep/__init__.py": "",
        "deep/inner.py": "VALUE = 7\n",
    }
    directory = build(files=package)
    module = kernforge.get_local_kernel(directory)
    assert module.late() == 7
    with pytest.raises(ImportError, match="nothing"):
        module.missing()
    assert not list(directory.rglob("*.pyc"))


def test_dependencies_are_imported_first(registry, build):
    publish(build(name="base", files={"__init__.py": "VALUE = 5"}), registry, "owner/base")
    package = {
        "__init__.py": "import kernforge\nbase = kernforge.get_kernel_dep('owner/base')\n"
        "def undeclared():\n    kernforge.get_kernel_dep('owner/base')\n"
    }
    publish(build(files=package, depends={"owner/base": 1}), registry, REPO)
    module = kernforge.get_kernel(REPO, version=1)
    assert module.base.VALUE == 5
    assert module.base is kernforge.get_kernel("owner/base", version=1)
    with pytest.raises(UsageError, match="only works during kernel loading"):
        module.undeclared()
    package = {"__init__.py": "import kernforge\nkernforge.get_kernel_dep('owner/base')\n"}
    with pytest.raises(UsageError, match="'owner/base' was not found in kernel dependencies"):
        kernforge.get_local_kernel(build(files=package))


@pytest.mark.parametrize("installed", [True, False])
def test_kernel_imports_dependencies_from_kernels(registry, build, monkeypatch, installed):
    publish(build(name="base", files={"__init__.py": "VALUE = 5"}), registry, "owner/base")
    package = {
        "__init__.py": "from kernels import get_kernel_dep\nbase = get_kernel_dep('owner/base')\n"
    }
    publish(build(files=package, depends={"owner/base": 1}), registry, REPO)
    if not installed:
        for name in [n for n in sys.modules if n.partition(".")[0] == "kernels"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(importer.importlib.util, "find_spec", lambda _name: None)
    assert kernforge.get_kernel(REPO, version=1).base.VALUE == 5
    assert ("kernels" in sys.modules) is installed


def test_failed_import_can_be_retried(build, monkeypatch):
    package = {
        "__init__.py": "from . import part\nimport sys\nif sys.broken: raise OSError('broken')\n",
        "part.py": "",
    }
    directory = build(files=package)
    monkeypatch.setattr(sys, "broken", True, raising=False)
    before = set(sys.modules)
    with pytest.raises(OSError, match="broken") as caught:
        kernforge.get_local_kernel(directory)
    assert str(directory) in caught.value.__notes__[0]
    assert set(sys.modules) == before
    monkeypatch.setattr(sys, "broken", False)
    assert kernforge.get_local_kernel(directory).part


def test_two_builds_of_one_id_are_refused(build, write_variant, tmp_path):
    first = kernforge.get_local_kernel(build(unique="same001"))
    write_variant(tmp_path / "copy", unique="same001")
    assert kernforge.get_local_kernel(tmp_path / "copy") is first
    other = write_variant(tmp_path / "other", unique="same001", files={"__init__.py": "OTHER = 1"})
    with pytest.raises(UsageError, match="another build called _toy_cpu_same001 is loaded"):
        kernforge.get_local_kernel(other)


@pytest.mark.parametrize("name", ["_toy.b", "_toy/b", "wave", ""])
def test_invalid_module_id_is_refused(build, name):
    built = build(unique="id001")
    document = next(built.glob("*/metadata.json"))
    document.write_text(document.read_text().replace('"_toy_cpu_id001"', f'"{name}"'))
    with pytest.raises(IntegrityError, match="cannot name a module"):
        kernforge.get_local_kernel(built)


def test_nested_package_of_old_builds_loads(build):
    files = {"my_toy/__init__.py": "from . import part\n", "my_toy/part.py": "VALUE = 3\n"}
    assert (
        kernforge.get_local_kernel(build(name="my-toy", files=files, unique="my-unique")).part.VALUE
        == 3
    )
