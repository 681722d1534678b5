# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest
from support.variants import replace_linked

from kernforge.application import project_lock
from kernforge.application.download import parse_platform
from kernforge.application.project_lock import load_document, read_dependencies
from kernforge.errors import (
    CheckError,
    IntegrityError,
    RegistryError,
    RequestError,
    UsageError,
)
from kernforge.loader import api as loader, lock, search
from kernforge.registry.names import Request, request


def test_requirements_are_locked_within_their_bounds(project, released):
    commits = {v: released("o/n", v) for v in ("1.1.0", "1.3.0", "2.0.0")}
    (pin,) = project('"o/n" = ">=1.1,<2"').values()
    assert (pin.commit, pin.release, pin.depend.version) == (commits["1.3.0"], "1.3.0", 1)
    (pin,) = project('"o/n" = 2').values()
    assert (pin.commit, pin.asked) == (commits["2.0.0"], "2")
    (pin,) = project('"o/n" = { revision = "v1.1.0" }').values()
    assert (pin.commit, pin.depend.revision) == (commits["1.1.0"], "v1.1.0")
    with pytest.raises(RegistryError, match=r"has no version <1\.1"):
        project('"o/n" = "<1.1"')


def test_a_lock_stays_until_upgraded_or_unsatisfied(project, released):
    old = {name: released(name, "1.0.0") for name in ("o/a", "o/b")}
    both = ('"o/a" = 1', '"o/b" = ">=1,<2"')
    project(*both)
    new = {name: released(name, "1.1.0") for name in ("o/a", "o/b")}
    assert {k[0]: p.commit for k, p in project(*both).items()} == old
    # The lock keeps what it has where that is within the new bounds, too.
    kept = project('"o/a" = "~=1.0"', '"o/b" = 1')
    assert {k[0]: p.commit for k, p in kept.items()} == old
    found = project(*both, upgrade=("o/a",))
    assert {k[0]: p.commit for k, p in found.items()} == {**old, "o/a": new["o/a"]}
    found = project('"o/a" = 1', '"o/b" = ">=1.1"')
    assert found["o/b", 1].commit == new["o/b"]
    assert project(*both, upgrade=None)["o/b", 1].commit == new["o/b"]
    with pytest.raises(UsageError, match="o/zzz cannot be upgraded"):
        project(*both, upgrade=("o/zzz",))


def test_dependencies_of_every_variant_are_locked(project, released):
    deep = released("o/deep", "3.0.0")
    released("o/inner", "1.0.0", depends={"o/deep": 3})
    released("o/outer", "1.0.0", variants=("torch-cuda",), depends={"o/inner": 1})
    found = project('"o/outer" = 1')
    assert {key: pin.asked for key, pin in found.items()} == {
        ("o/deep", 3): None,
        ("o/inner", 1): None,
        ("o/outer", 1): "1",
    }
    assert found["o/deep", 3].commit == deep
    released("o/deep", "3.1.0")
    assert project('"o/outer" = 1')["o/deep", 3].commit == deep


def test_the_projects_bounds_hold_for_dependencies(project, released):
    wanted = released("o/inner", "1.2.0")
    released("o/inner", "1.9.0")
    released("o/outer", "1.0.0", depends={"o/inner": 1})
    found = project('"o/outer" = 1', '"o/inner" = "<1.5"')
    assert [key for key in found if key[0] == "o/inner"] == [("o/inner", 1)]
    assert found["o/inner", 1].commit == wanted


def test_the_projects_major_version_comes_first(project, released):
    released("o/inner", "1.0.0")
    mine = released("o/inner", "2.0.0")
    released("o/outer", "1.0.0", depends={"o/inner": 1})
    project('"o/outer" = 1', '"o/inner" = 2')
    locks = lock.read(project.root / "kernels.lock")
    assert locks.of("o/inner").commit == mine
    assert locks.find(request("o/inner", 1)).commit != mine


def test_cycles_and_moved_kernels_are_refused(project, released, registry):
    released("o/a", "1.0.0")
    released("o/b", "1.0.0", depends={"o/a": 1})
    released("o/a", "1.0.1", depends={"o/b": 1})
    with pytest.raises(RegistryError, match="in a cycle: o/"):
        project('"o/a" = 1')
    commit = released("o/old", "1.0.0")
    text = 'kind = "redirect"\ndestination = "o/new"\nrevision = "v1"\n'
    (registry.snapshot("o/old", commit) / "kernel-status.toml").write_text(text)
    with pytest.raises(RegistryError, match="o/old moved to o/new"):
        project('"o/old" = 1')


def test_a_lock_of_the_client_keeps_its_commits(project, released):
    old = released("o/n", "1.0.0")
    released("o/n", "1.1.0")
    project.root.mkdir()
    entry = {"dependency": {"repo-id": "o/n", "version": 1}, "lock": {"commit": old}}
    (project.root / "kernels.lock").write_text(json.dumps([entry]))
    assert project('"o/n" = 1')["o/n", 1].commit == old


def test_check_lists_every_reason_offline(project, released, registry):
    released("o/a", "1.0.0")
    released("o/b", "1.0.0")
    project('"o/a" = 1', '"o/b" = 1')
    project_lock.check(project_lock.read(project.root))
    (project.root / "pyproject.toml").write_text(
        '[tool.kernels.dependencies]\n"o/a" = "<2"\n"o/c" = 1\n'
    )
    with pytest.raises(CheckError) as error:
        project_lock.check(project_lock.read(project.root))
    for reason in ("o/a is locked for 1", "o/c is not locked", "o/b is locked, the project"):
        assert reason in error.value.message
    (project.root / "kernels.lock").write_text("[]")
    with pytest.raises(CheckError, match="two different locks"):
        project_lock.check(project_lock.read(project.root))
    (project.root / "kernels.lock").unlink()
    with pytest.raises(CheckError, match=r"there is no kernels\.lock"):
        project_lock.check(project_lock.read(project.root))


def test_the_packages_copy_is_written_and_checked(project, released):
    released("o/a", "1.0.0")
    package = project.root / "src/app"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    project('"o/a" = 1', "[tool.kernforge.lock]", 'package = "src/app"')
    for name in project_lock.NAMES:
        assert (package / name).read_bytes() == (project.root / name).read_bytes()
    (package / "kernels.lock").write_text("[]")
    with pytest.raises(CheckError, match=r"src/app/kernels\.lock is not the project's"):
        project_lock.check(project_lock.read(project.root))


def test_a_project_without_requirements_is_refused(tmp_path, project):
    with pytest.raises(UsageError, match=r"pyproject\.toml is missing"):
        project_lock.read(Path(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="there is nothing to lock"):
        project()


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2}', '{"format": 1, "kernels": [1]}'])
def test_a_corrupt_lock_is_refused(project, released, text):
    released("o/a", "1.0.0")
    project('"o/a" = 1')
    (project.root / "kernforge-kernels.lock").write_text(text)
    with pytest.raises(RequestError, match=r"kernforge-kernels\.lock"):
        project_lock.read(project.root)


def test_the_loader_refuses_a_changed_commit(project, released, registry, monkeypatch):
    commit = released("o/n", "1.0.0")
    project('"o/n" = 1')
    for module in (loader, search):
        if hasattr(module, "probe"):
            monkeypatch.setattr(
                module, "probe", lambda _backend: parse_platform("cpu-x86_64-linux")
            )
    ask = {"lockfile": project.root / "kernels.lock", "registry": registry}
    path = registry.fetch("o/n", commit, "torch-cpu") / "metadata.json"
    document = path.read_bytes()
    replace_linked(path, document.replace(b"Apache-2.0", b"MIT"))
    with pytest.raises(IntegrityError, match="is not what was locked"):
        loader.load_kernel("o/n", **ask)
    replace_linked(path, document)
    assert loader.load_kernel("o/n", **ask).ANSWER == 42


# -- requirements of a project ------------------------------------------------------------------


def asked(text):
    return read_dependencies(load_document(f"[tool.kernels.dependencies]\n{text}"))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("1", {"version": "1"}),
        ("'2'", {"version": "2"}),
        ("'>=1.2,<2'", {"version": "<2,>=1.2"}),
        ("'1.2.3'", {"version": "==1.2.3"}),
        ("'v1.2.3'", {"version": "==1.2.3"}),
        ("{ revision = 'main' }", {"revision": "main"}),
        ("{ version = '~=1.2' }", {"version": "~=1.2"}),
    ],
)
def test_the_forms_of_a_requirement(value, wanted):
    assert asked(f"'owner/toy' = {value}") == (Request(repo_id="owner/toy", **wanted),)


def test_all_mistakes_are_listed():
    with pytest.raises(UsageError) as error:
        asked(
            "'toy' = 1\n'o/a' = 'soon'\n'o/b' = -1\n'o/c' = true\n'o/d' = ''\n"
            "'o/e' = { revision = 'x', version = 1 }\n'o/f' = 1\n"
        )
    said = error.value.message
    assert all(
        text in said for text in ("'toy' is not a repo id", "'soon'", "-1", "True", "'' is not a")
    )
    assert "'o/e'" in said
    assert "o/f" not in said


def test_an_invalid_document_is_refused():
    assert read_dependencies({}) == ()
    with pytest.raises(UsageError, match="is not a table"):
        read_dependencies({"tool": {"kernels": {"dependencies": 1}}})
    with pytest.raises(UsageError, match="is not TOML"):
        load_document("[")
