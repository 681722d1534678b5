# SPDX-License-Identifier: Apache-2.0
import zipfile

import pytest
from packaging.version import Version

from kernforge.errors import UsageError
from kernforge.setuptools import stub, target, wheels
from kernforge.system.environment import Environment

METADATA = """Metadata-Version: 2.1
Name: my_ops
Version: 1.2+their.label
Requires-Python: >=3.9
Requires-Dist: einops
Requires-Dist: torch>=2.0
Requires-Dist: torch; extra == "test"

# Text
Version: stays
"""


def wheel(tmp_path, members):
    path = tmp_path / "my_ops-1.2-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as opened:
        for name, data in members.items():
            opened.writestr(name, data)
    return path


def test_a_wheel_without_extensions_is_refused(tmp_path):
    made = wheel(tmp_path, {"my_ops-1.2.dist-info/METADATA": METADATA, "my_ops/__init__.py": ""})
    wanted = target.named_target("2.11", "13.0", "3.12")
    with pytest.raises(UsageError, match="has no extension"):
        wheels.relabel(made, wanted, tmp_path / "out", tmp_path / "files", tmp_path)


def test_local_versions_sort_by_torch_and_cuda():
    labels = [
        wheels.local_version(target.named_target(torch, cuda, "3.12"))
        for torch, cuda in (("2.9", "cpu"), ("2.9", "13.0"), ("2.11", "13.0"), ("2.13", "13.2"))
    ]
    versions = [Version(f"1.0+{label}") for label in labels]
    assert versions == sorted(versions)
    assert versions[0] > Version("1.0")


def test_targets_pair_torch_with_its_published_cuda():
    found = wheels.targets(["2.11", "2.13"], ["13.0", "13.2", "cpu"], [], Environment({}))
    assert [(str(t.torch), str(t.cuda)) for t in found] == [
        ("2.11", "13.0"),
        ("2.11", "None"),
        ("2.13", "13.0"),
        ("2.13", "13.2"),
        ("2.13", "None"),
    ]
    with pytest.raises(UsageError, match=r"torch 2\.15 was published for none of CUDA 12\.6"):
        wheels.targets(["2.15"], ["12.6"], [], Environment({}))


def test_project_copy_leaves_out_build_results(tmp_path):
    kept = ["setup.py", "pkg/__init__.py", "pkg/data.so", "csrc/a.cu"]
    kept += ["pkg/build/__init__.py", "csrc/dist/comm.cu"]
    left = ["build/lib/a.so", "dist/a.whl", "pkg.egg-info/PKG-INFO", "pkg/a.cpython-311-x.so"]
    left += ["venv/pyvenv.cfg", "venv/lib/torch.h", ".venv/lib/torch.h", "pkg/__pycache__/a.pyc"]
    for name in [*kept, *left]:
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "project/linked").symlink_to("csrc")
    stub.copy_project(tmp_path / "project", tmp_path / "copy")
    assert (tmp_path / "copy/linked/a.cu").is_file()
    found = [p for p in (tmp_path / "copy").rglob("*") if p.is_file()]
    assert sorted(str(p.relative_to(tmp_path / "copy")) for p in found) == sorted(kept)
