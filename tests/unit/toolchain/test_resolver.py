# SPDX-License-Identifier: Apache-2.0
"""What a lock lacks of what a build needs."""

import pytest

from kernforge.toolchain import lockfile, projects, resolver
from kernforge.toolchain.lockfile import (
    Lock,
    LockedCompiler,
    LockedPython,
    LockedToolkit,
    LockedWheel,
)

COMPILER = LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")
PYTHON = LockedPython(release="3.11.7", headers="a" * 64)


def wheel(project):
    return LockedWheel(file=f"{project.replace('-', '_')}-13.0-py3-none-any.whl", sha256="0" * 64)


def locked(libraries=(), python=None):
    toolkit = LockedToolkit(
        release="13.0.2",
        wheels=tuple(map(wheel, projects.TOOLKIT)),
        libraries=tuple(map(wheel, libraries)),
    )
    return Lock(platform="x86_64-linux", compiler=COMPILER, cuda={"13.0": toolkit}, python=python)


def needs(**more):
    return resolver.Needs(cuda=frozenset({"13.0"}), torch=frozenset(), **more)


@pytest.mark.parametrize(
    ("libraries", "wanted", "lacks"),
    [
        ((), False, False),
        ((), True, True),
        (projects.LIBRARIES, True, False),
    ],
)
def test_a_toolkit_without_all_libraries_is_completed(libraries, wanted, lacks):
    found = resolver.lacking(needs(libraries=wanted), locked(libraries))
    assert bool(found.cuda) is lacks


def test_headers_of_python_are_lacking_until_they_are_locked():
    assert resolver.lacking(needs(python=True), locked()).names == ("headers of Python",)
    assert resolver.lacking(needs(python=True), locked(python=PYTHON)).names == ()
    assert resolver.lacking(needs(), locked()).names == ()


def test_a_lock_keeps_the_headers_of_python_and_gives_them_to_who_read_them():
    full = locked(python=PYTHON)
    assert lockfile.from_json(full.to_json()) == full
    assert lockfile.part(full, ["cxx", "python"]).python == PYTHON
    assert lockfile.part(full, ["cxx"]).python is None
    assert locked().merged(full).python == full.merged(locked()).python == PYTHON


def test_a_lock_from_before_they_were_locked_is_read():
    text = locked().to_json().replace('  "python": null,\n', "")
    assert '"python"' not in text
    assert lockfile.from_json(text) == locked()
