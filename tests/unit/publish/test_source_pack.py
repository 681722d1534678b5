# SPDX-License-Identifier: Apache-2.0
import pytest
from support import projects

from kernforge.errors import UsageError
from kernforge.project import api as project
from kernforge.publish.api import pack_source


@pytest.mark.parametrize(
    ("licence", "locked", "wanted", "packed"),
    [
        ("Apache-2.0", True, None, True),
        ("Apache-2.0", True, False, False),
        ("Apache-2.0", False, None, False),
        ("(MIT OR apache-2.0) AND GPL-3.0-only WITH GCC-exception-3.1", True, None, True),
        ("MIT AND LicenseRef-Secret", True, None, False),
        ("Proprietary", True, None, False),
        ("Proprietary", True, True, True),
    ],
)
def test_the_files_of_a_build_are_packed(tmp_path, licence, locked, wanted, packed):
    root = projects.write(tmp_path)
    manifest = root / "build.toml"
    manifest.write_text(manifest.read_text().replace("Apache-2.0", licence))
    for path in ("LICENSE", "notes.txt", "tests/test_x.py", "torch-ext/times_two/table.py"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("")
    if locked:
        (root / "kernforge.lock").write_text("{}")
    found = pack_source(project.read_project(root), wanted=wanted)
    assert bool(found) is packed
    if packed:
        assert {"LICENSE", "build.toml", "kernforge.lock", "times_two.cpp"} <= set(found)
        assert "torch-ext/times_two/table.py" in found
        assert not {"notes.txt", "tests/test_x.py"} & set(found)


def test_a_wanted_source_needs_a_lock(tmp_path):
    with pytest.raises(UsageError, match=r"has no kernforge\.lock"):
        pack_source(project.read_project(projects.write(tmp_path)), wanted=True)


def test_the_headers_of_a_build_are_packed(tmp_path):
    root = projects.write(tmp_path, cpp='#include "kernforge/elementwise.h"\n')
    (root / "kernforge.lock").write_text("{}")
    found = pack_source(project.read_project(root), wanted=True)
    headers = {path: real for path, real in found.items() if path.startswith("csrc/")}
    assert [*headers] == ["csrc/kernforge/dtype.h", "csrc/kernforge/elementwise.h"]
    assert all("#pragma once" in real.read_text() for real in headers.values())
    # What is unpacked elsewhere is the same source.
    for path, real in headers.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(real.read_bytes())
    assert pack_source(project.read_project(root), wanted=True).keys() == found.keys()
