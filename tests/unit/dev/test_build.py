# SPDX-License-Identifier: Apache-2.0

import types
from pathlib import Path

from kernforge.dev import build as dev_build
from kernforge.dev.session import DevOptions
from kernforge.system.environment import Environment
from kernforge.toolchain.local_parts import NO_LOCAL_PARTS, LocalPartsOptions


def dev_options(parts):
    return DevOptions(root=Path(), place=Path(), environment=Environment({}), local_parts=parts)


def test_the_machine_is_looked_at_once_for_a_manifest(monkeypatch):
    asked = []

    def open_workspace(project, events, environment, options, *, cxx, local_parts):
        asked.append((cxx, local_parts))
        return types.SimpleNamespace(compiler="g++", local_parts="torch")

    monkeypatch.setattr(dev_build.build_workspace, "open_workspace", open_workspace)
    project = types.SimpleNamespace(manifest=types.SimpleNamespace(content="a"))
    kept = {}
    library = LocalPartsOptions(depends={"cutlass": Path("cutlass")})
    for brought in (NO_LOCAL_PARTS, NO_LOCAL_PARTS, library):
        dev_build.open_workspace(project, None, dev_options(brought), kept)
    # A library may be edited between rounds.
    assert asked == [(None, None), ("g++", "torch"), ("g++", None)]
    project.manifest.content = "b"
    dev_build.open_workspace(project, None, dev_options(NO_LOCAL_PARTS), kept)
    assert asked[-1] == (None, None)
