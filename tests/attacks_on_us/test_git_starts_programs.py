# SPDX-License-Identifier: Apache-2.0
"""A project's repository names programs that git starts (A3): reading it must start none of them.

Each attack is a setting of ``.git/config``, an attribute or a hook that would write a file; and the
same in a bare repository that came as an ordinary subdirectory of a clone.
"""

import os

import pytest
from support import projects
from support.projects import git

from kernforge.errors import UsageError
from kernforge.project import api as project, git as checkout


@pytest.fixture
def repo(tmp_path):
    root = projects.write_toy(tmp_path / "toy")
    (root / "extra.txt").write_text("text\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    git(root, "tag", "-a", "v1.2.3", "-m", "annotated")
    git(root, "tag", "v1.1.0")
    return root


@pytest.fixture
def trap(tmp_path):
    """A program that leaves a mark when it is started, and where the mark would be."""
    mark = tmp_path / "started"
    program = tmp_path / "trap"
    program.write_text(f"#!/bin/sh\nenv > {mark}\ncat\n")
    program.chmod(0o755)
    return program, mark


def by_config(name):
    def plant(root, program):
        with (root / ".git" / "config").open("a") as stream:
            section, _, key = name.rpartition(".")
            head, _, sub = section.partition(".")
            title = f'{head} "{sub}"' if sub else head
            stream.write(f"[{title}]\n\t{key} = {program}\n")
        (root / "extra.txt").write_text("touched\n")

    return plant


def by_filter(kind):
    def plant(root, program):
        by_config(f"filter.x.{kind}")(root, program)
        (root / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
        git_info = root / ".git" / "info"
        git_info.mkdir(exist_ok=True)
        (git_info / "attributes").write_text("* filter=x\n")
        os.utime(root / "extra.txt", (1, 1))

    return plant


def by_hook(root, program):
    for name in (
        "post-index-change",
        "post-checkout",
        "fsmonitor-watchman",
        "reference-transaction",
    ):
        hook = root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(program.read_text())
        hook.chmod(0o755)
    by_config("core.fsmonitor")(root, ".git/hooks/fsmonitor-watchman")


def by_include(root, program):
    more = root / "more.cfg"
    more.write_text(f"[core]\n\tfsmonitor = {program}\n")
    by_config("include.path")(root, more)


def by_submodule(root, program):
    inner = root / "lib"
    inner.mkdir()
    (inner / "file").write_text("")
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "inner")
    git(root, "add", "lib")
    git(root, "commit", "-qm", "with a submodule")
    by_config("core.fsmonitor")(inner, program)


def by_worktree(root, program):
    by_config("core.worktree")(root, "/")
    by_config("core.fsmonitor")(root, program)


ATTACKS = {
    "fsmonitor": by_config("core.fsmonitor"),
    "hooksPath": by_config("core.hooksPath"),
    "pager": by_config("core.pager"),
    "alternateRefsCommand": by_config("core.alternateRefsCommand"),
    "sshCommand": by_config("core.sshCommand"),
    "external diff": by_config("diff.external"),
    "signed tags": by_config("gpg.program"),
    "clean": by_filter("clean"),
    "process": by_filter("process"),
    "hooks": by_hook,
    "include": by_include,
    "submodule": by_submodule,
    "worktree": by_worktree,
}


@pytest.mark.parametrize("plant", ATTACKS.values(), ids=ATTACKS)
def test_reading_or_cloning_starts_no_program_of_the_repository(repo, trap, plant, tmp_path):
    program, mark = trap
    commit = git(repo, "rev-parse", "HEAD")
    by_config("uploadpack.packObjectsHook")(repo, program)
    plant(repo, program)
    found = project.read_project(repo)
    assert found.git is not None
    assert project.tagged_version(found) in {None, "1.2.3"}
    project.folder(found)
    checkout.clone(str(repo), commit, tmp_path / "again")
    assert project.read_project(tmp_path / "again").git.commit == commit
    assert not mark.exists(), f"a program was started: {mark.read_text()}"


def test_a_bare_repository_in_a_subdirectory_is_none(tmp_path, repo, trap):
    program, mark = trap
    inner = repo / "kernel"
    git(repo, "clone", "-q", "--bare", str(repo), str(inner))
    projects.write_toy(inner)
    with (inner / "config").open("a") as stream:
        stream.write(f"[core]\n\tbare = false\n\tworktree = {inner}\n\tfsmonitor = {program}\n")
    found = project.read_project(inner)
    assert project.folder(found) == "kernel"
    assert not mark.exists()


ADDRESSES = ["ext::sh -c {0}", "git+ext::sh -c {0}", "fd::7", "--upload-pack={0}", "-u{0}"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_starts_a_program_is_refused(address, trap, tmp_path):
    program, mark = trap
    with pytest.raises(UsageError):
        checkout.clone(address.format(program), "0" * 40, tmp_path / "again")
    assert not mark.exists()


@pytest.mark.parametrize("commit", ["--orphan=x", "HEAD", "-f", "v1; touch x"])
def test_a_commit_is_a_hash(commit, repo, tmp_path):
    with pytest.raises(UsageError, match="is not a commit"):
        checkout.clone(str(repo), commit, tmp_path / "again")


def test_a_folder_outside_of_the_checkout_is_refused(repo, tmp_path):
    """The statement of a kernel names a folder, which is written to (B5)."""
    (tmp_path / "home").mkdir()
    (repo / "kernel").symlink_to(tmp_path / "home")
    (repo / "real").mkdir()
    (repo / "real" / "build.toml").write_text("")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "with a link")
    into = tmp_path / "into"
    checkout.clone(str(repo), git(repo, "rev-parse", "HEAD"), into)
    assert checkout.below(into, "real") == into / "real"
    assert checkout.below(into, "") == into
    for folder in ("kernel", "kernel/x", "..", "../home", "real/../../home", "/etc"):
        with pytest.raises(UsageError, match="leads out of the checkout"):
            checkout.below(into, folder)


def test_what_git_knows_is_still_known(repo, tmp_path):
    """The guarded way gives what git gives."""
    found = project.read_project(repo)
    assert found.git.commit == git(repo, "rev-parse", "HEAD")
    assert not found.git.dirty
    assert project.tagged_version(found) == "1.2.3"
    git(repo, "gc", "-q")  # tags and branches are packed now
    found = project.read_project(repo)
    assert (found.git.dirty, project.tagged_version(found)) == (False, "1.2.3")
    (repo / "extra.txt").write_text("changed\n")
    assert project.read_project(repo).git.dirty
    tree = tmp_path / "tree"
    git(repo, "worktree", "add", "-q", "--detach", str(tree), "v1.1.0")
    inside = project.read_project(tree)
    assert (inside.git.commit, inside.git.dirty) == (git(repo, "rev-parse", "HEAD"), False)
    inner = projects.write_toy(repo / "sub")
    assert project.read_project(inner).git.dirty, "no commit holds it"
    git(repo, "add", "sub")
    git(repo, "commit", "-q", "-m", "sub", "--", "sub")
    below = project.read_project(inner)
    assert project.folder(below) == "sub"
    assert not below.git.dirty, "what changed lies outside of the project"


def test_a_submodule_that_changed_is_seen(repo, trap):
    by_submodule(repo, trap[0])
    assert not project.read_project(repo).git.dirty
    (repo / "lib" / "file").write_text("changed\n")
    assert project.read_project(repo).git.dirty
