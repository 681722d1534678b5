# SPDX-License-Identifier: Apache-2.0
"""The course of a build, with a project of Python alone: it needs no compiler."""

import functools
import importlib.util
from dataclasses import replace

import pytest
from support import graphs

from kernforge.builder import api
from kernforge.builder.api import BuildRequest
from kernforge.builder.provenance import NO_LOCK
from kernforge.builder.workspace import Workspace
from kernforge.check import api as check
from kernforge.errors import (
    BuildError,
    MissingPackageError,
    SourceError,
    StorageError,
    ToolchainError,
    UsageError,
)
from kernforge.manifest import document
from kernforge.project.api import Project
from kernforge.store.local import Store
from kernforge.system.environment import Environment
from kernforge.system.progress import Progress
from kernforge.toolchain.host_compiler import Compiler
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.local_parts import LocalParts

MANIFEST = """[general]
name = "my-op"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch-noarch]
"""


@pytest.fixture
def workspace(tmp_path):
    root = tmp_path / "project"
    package = root / "torch-ext" / "my_op" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("def twice(x):\n    return x + x\n")
    (root / "build.toml").write_text(MANIFEST)
    project = Project(
        root=root,
        manifest=document.parse(MANIFEST, source="build.toml"),
        manifest_text=MANIFEST,
        files={str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()},
        git=None,
    )
    return Workspace(
        project=project,
        compiler=Compiler(path="/usr/bin/g++", identity="g++ 12", target="x86_64-linux-gnu"),
        store=Store(tmp_path / "store"),
        wheels=Wheels(
            functools.partial(Index.from_environment, {}), tmp_path / "downloads", Progress()
        ),
        cpu="x86_64",
        local_parts=LocalParts(),
        environment=Environment({}),
    )


def request(workspace, **fields):
    targets = tuple(c.target for c in workspace.candidates if c.default)
    return BuildRequest(
        **{"targets": targets, "lock": NO_LOCK, "events": graphs.Events(), **fields}
    )


def test_variants_are_laid_out_and_events_reported(workspace):
    noted = request(workspace)
    result = api.build_project(workspace, noted)
    out = workspace.project.root / "build"
    assert result.variants == {name: out / name for name in ("torch-cpu", "torch-cuda")}
    assert (out / "torch-cpu" / "metadata.json").is_file()
    assert (result.left_out, result.findings) == ((), ())
    result.refuse_failures()
    assert noted.events.log == ["planned", "finished"]


def test_no_variant_is_written_through_a_link(workspace, tmp_path):
    """An untrusted project would replace a variant of another one."""
    mine = tmp_path / "mine" / "torch-cpu" / "metadata.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    (workspace.project.root / "build").symlink_to(tmp_path / "mine")
    with pytest.raises(StorageError, match="is a symbolic link"):
        api.build_project(workspace, request(workspace, untrusted=True))
    assert mine.read_text() == "mine"


def test_a_no_change_build_writes_nothing_and_mends_files(workspace):
    first = api.build_project(workspace, request(workspace)).variants["torch-cpu"]
    module, before = first / "__init__.py", (first / "__init__.py").stat()
    api.build_project(workspace, request(workspace))
    assert module.stat() == before
    module.chmod(0o644)
    module.write_text("tampered\n")
    api.build_project(workspace, request(workspace))
    assert module.read_text() == "def twice(x):\n    return x + x\n"
    module.write_text("tampered\n")
    module.with_name("mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"not of the variant.*: mine\.txt"):
        api.build_project(workspace, request(workspace))
    assert module.with_name("mine.txt").read_text() == "mine"


def test_a_variant_is_checked_until_it_passes(workspace):
    asked = request(workspace, check=True)
    source = workspace.project.files["torch-ext/my_op/__init__.py"]
    assert not [f for f in api.build_project(workspace, asked).findings if f.severity == "error"]
    assert api.build_project(workspace, asked).findings == ()
    source.write_text("import nothing_like_it\n")
    changed = replace(workspace, project=replace(workspace.project))
    for _ in range(2):
        rules = {f.rule for f in api.build_project(changed, asked).findings}
        assert "import" in rules


def test_a_variant_is_checked_again_where_the_rules_differ(workspace, tmp_path, monkeypatch):
    checked = []
    monkeypatch.setattr(check, "check_variant", lambda path, **_: checked.append(path.name) or ())
    monkeypatch.setattr(check, "__file__", str(tmp_path / "check" / "api.py"))
    (tmp_path / "check").mkdir()
    for rule in ("old", "old", "new"):
        (tmp_path / "check" / "rules.py").write_text(rule)
        check.rules.cache_clear()  # each as in a process of its own
        api.build_project(workspace, request(workspace, check=True))
    assert checked == ["torch-cpu", "torch-cuda"] * 2


def test_a_variant_that_is_a_link_is_replaced(workspace, tmp_path):
    (tmp_path / "mine").mkdir()
    out = workspace.project.root / "build"
    out.mkdir()
    (out / "torch-cpu").symlink_to(tmp_path / "mine")
    api.build_project(workspace, request(workspace))
    assert not list((tmp_path / "mine").iterdir())
    assert not (out / "torch-cpu").is_symlink()


def test_package_directory_with_another_name_is_refused_before_the_lock(workspace):
    files = {"torch-ext/my-op/__init__.py": workspace.project.root}
    moved = replace(workspace, project=replace(workspace.project, files=files))
    with pytest.raises(SourceError, match=r"there is no torch-ext/my_op/__init__\.py") as told:
        api.plan_project(moved, request(moved, lock="frozen"))
    assert told.value.hint == "rename torch-ext/my-op to torch-ext/my_op"


def test_a_frozen_lock_is_not_written(workspace):
    source = workspace.project.root / "build.toml"
    before = sorted(source.parent.iterdir())
    with pytest.raises(ToolchainError, match="has no content"):
        api.plan_project(workspace, request(workspace, lock="frozen"))
    assert sorted(source.parent.iterdir()) == before


def edited(*actions):
    """A plan in the place of one: its variants are linked by these actions."""

    def edit(workspace, planned, context):
        assert context.store is workspace.store
        linked = [
            replace(artifact, extension=action.key)
            for artifact, action in zip(planned.plan.artifacts, actions, strict=True)
        ]
        return replace(planned.plan, actions=actions, artifacts=tuple(linked))

    return edit


def test_a_variant_whose_action_fails_is_left_out(workspace):
    good = graphs.action("good", ">k.so", outputs=("k.so",))
    asked = request(workspace, edited=edited(good, graphs.action("bad", "exit 3")), sandbox="off")
    result = api.build_project(workspace, asked)
    assert set(result.variants) == {"torch-cpu"}
    assert result.left_out == ("torch-cuda",)
    with pytest.raises(BuildError, match="1 of 2 actions failed, so torch-cuda could not be built"):
        result.refuse_failures()
    # Who switched the sandbox off is not told that there is none.
    assert not [line for line in asked.events.log if "sandbox" in line]


def test_a_missing_checker_is_reported_before_compiling(workspace, monkeypatch):
    ran = graphs.action("compiles", "touch k.so", outputs=("k.so",))
    asked = request(workspace, check=True)
    planned = api.plan_project(workspace, asked)
    planned = replace(planned, plan=replace(planned.plan, actions=(ran,)))
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "auditwheel" else real(name)
    )
    with pytest.raises(MissingPackageError, match="needs auditwheel") as caught:
        api.build_project(workspace, asked, planned)
    assert caught.value.hint == "pip install 'kernforge[build]', or build with --no-check"
    assert asked.events.log == []


def test_sources_that_no_compiler_here_can_compile_are_named_by_backend(workspace):
    sections = "".join(
        f'[kernel.{name}]\nbackend = "{name}"\ndepends = []\nsrc = ["{file}", "both.h"]\n'
        for name, file in {"cpu": "a.cpp", "cuda": "b.cu"}.items()
    )
    text = MANIFEST.replace("[torch-noarch]", f'[torch]\nsrc = ["c.cpp"]\n{sections}')
    files = workspace.project.files | {n: workspace.project.root / n for n in ("a.cpp", "b.cu")}
    files |= {n: workspace.project.root / n for n in ("c.cpp", "both.h")}
    for path in files.values():
        path.touch()
    manifest = document.parse(text, source="build.toml")
    project = replace(workspace.project, manifest=manifest, manifest_text=text, files=files)
    workspace = replace(workspace, project=project)
    asked = request(workspace, targets=(), every_source=True)
    told = {"cpu": ("a.cpp", "c.cpp"), "cuda": ("b.cu", "c.cpp")}
    assert api.build_project(workspace, asked).uncompiled == told
    assert (
        "nothing is compiled for cuda: the toolchain lock has no cuda-13.0" in asked.events.log[3]
    )
