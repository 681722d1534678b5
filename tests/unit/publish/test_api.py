# SPDX-License-Identifier: Apache-2.0
"""Publication to a directory and to a hub: versions, branches, refusals, kills, races."""

import contextlib
import random
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import mortal

from kernforge.errors import IntegrityError, NotPublishedError, RegistryError, UsageError
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

REPO = "owner/toy"
CPU, CUDA = "torch-cpu", "torch-cuda"
# The hub's own client hands files to its HTTP library in a way that the latter wants changed.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def test_the_first_version_is_x_0_0(place, build):
    result = publish(build("a", (CPU, CUDA), version=3), place.open(), REPO, card="# toy\n")
    assert (result.version, result.status, result.variants) == ("3.0.0", "uploaded", (CPU, CUDA))
    registry = place.open()
    assert {registry.ref(REPO, name) for name in ("v3", "v3.0.0")} == {result.commit}
    assert place.refs() == ("main", "v3", "v3.0.0")
    assert place.texts("v3") == {CPU: "a", CUDA: "a"}
    card = registry.small_file(REPO, registry.ref(REPO, "main"), "README.md")
    assert card == b"# toy\n"


def test_publishing_twice_changes_nothing(place, build):
    first = publish(build("a", (CPU, CUDA)), place.open(), REPO, card="# toy")
    second = publish(build("a", (CPU, CUDA)), place.open(), REPO, card="# toy")
    assert (second.commit, second.version, second.status) == (first.commit, "1.0.0", "no_changes")
    assert place.refs() == ("main", "v1", "v1.0.0")


@pytest.mark.parametrize("variants", [(CPU,), (CPU, CUDA)])
def test_a_published_version_never_changes(place, build, variants):
    first = publish(build("a", (CPU,)), place.open(), REPO, "1.4.0")
    with pytest.raises(RegistryError, match=r"1\.4\.0 is published, and these variants differ"):
        publish(build("b", variants), place.open(), REPO, "v1.4.0")
    following = publish(build("a" if len(variants) > 1 else "b", variants), place.open(), REPO)
    assert (following.version, following.variants) == ("1.4.1", variants)
    assert place.open().ref(REPO, "v1.4.0") == first.commit
    assert place.texts("v1.4.0") == {CPU: "a"}
    assert place.open().ref(REPO, "v1") == following.commit


def test_another_source_or_card_makes_no_new_version(place, build, tmp_path):
    (tmp_path / "op.cpp").write_text("one")
    source = {"op.cpp": tmp_path / "op.cpp", "kernforge.lock": tmp_path / "op.cpp"}
    first = publish(build("a"), place.open(), REPO, source=source, card="# one")
    (tmp_path / "op.cpp").write_text("two")
    again = publish(build("a"), place.open(), REPO, source=source, card="# two")
    assert again.commit == first.commit
    assert place.open().small_file(REPO, first.commit, "source/op.cpp") == b"one"


def test_an_older_version_leaves_the_branch_alone(place, build):
    publish(build("a"), place.open(), REPO, "1.0.0")
    newest = publish(build("c"), place.open(), REPO, "1.2.0")
    older = publish(build("b"), place.open(), REPO, "1.0.1")
    assert place.open().ref(REPO, "v1") == newest.commit
    assert place.open().ref(REPO, "v1.0.1") == older.commit
    assert place.refs() == ("main", "v1", "v1.0.0", "v1.0.1", "v1.2.0")
    assert (place.texts(), place.texts("v1.0.1")) == ({CPU: "c"}, {CPU: "b"})


def test_a_branch_without_versions_has_the_last_build(place, build):
    version = publish(build("a", (CPU, CUDA)), place.open(), REPO)
    first = publish(build("b", (CPU, CUDA)), place.open(), REPO, branch="dev")
    assert (first.version, first.branch, first.choice) == (None, "dev", None)
    again = publish(build("c", (CPU,)), place.open(), REPO, branch="dev")
    assert place.texts("dev") == {CPU: "c"}
    same = publish(build("c", (CPU,)), place.open(), REPO, branch="dev")
    assert (same.status, same.commit) == ("no_changes", again.commit)
    assert place.refs() == ("dev", "main", "v1", "v1.0.0")
    assert place.open().ref(REPO, "v1") == version.commit


def test_a_dry_run_writes_nothing(place, build):
    would = publish(build("a"), place.open(), REPO, dry_run=True)
    assert (would.variants, would.version, would.changed) == ((CPU,), "1.0.0", False)
    refs = ()
    with contextlib.suppress(NotPublishedError):  # as a hub says
        refs = place.refs()
    assert refs == ()


def test_variants_of_two_kernels_or_versions_are_refused(registry, build, write_variant):
    directory = build("a")
    write_variant(directory, variant=CUDA, version=2)
    with pytest.raises(RegistryError, match="not of one kernel and version"):
        publish(directory, registry, REPO)
    write_variant(directory, variant=CUDA, name="other")
    with pytest.raises(RegistryError, match="torch-cuda is other version 1"):
        publish(directory, registry, REPO)
    with pytest.raises(RegistryError, match="two builds of torch-cpu, and they differ"):
        publish([build("a", (CPU,)), build("b", (CPU,))], registry, REPO)


@pytest.mark.parametrize(
    ("version", "words"),
    [("2.0.0", "does not begin with 1"), ("1.0", "is not a version"), ("1.0.0rc1", "is not a ver")],
)
def test_an_impossible_version_is_refused(registry, build, version, words):
    with pytest.raises(UsageError, match=words):
        publish(build("a"), registry, REPO, version)


def test_a_modified_build_is_refused(registry, build, tmp_path):
    directory = build("a")
    (directory / CPU / "sub/data.so").write_text("tampered")
    with pytest.raises(IntegrityError, match=r"changed: sub/data\.so"):
        publish(directory, registry, REPO)
    with pytest.raises(IntegrityError, match="has no SHA-256 digest"):
        publish(build("a", digest=False), registry, REPO)
    with pytest.raises(UsageError, match="is not a directory"):
        publish(tmp_path / "empty", registry, REPO)


def test_bytecode_and_foreign_folders_are_not_published(place, build):
    directory = build("a")
    (directory / CPU / "__pycache__").mkdir()
    (directory / CPU / "__pycache__/x.pyc").write_bytes(b"")
    (directory / "notes").mkdir()
    assert publish(directory / CPU, place.open(), REPO).variants == (CPU,)
    path = place.open().fetch(REPO, place.open().ref(REPO, "v1"), CPU)
    found = sorted(file.relative_to(path).as_posix() for file in path.rglob("*.*"))
    assert found == ["__init__.py", "empty.py", "metadata.json", "sub/data.so"]


# -- the version number ----------------------------------------------------------------------------


@pytest.fixture
def version_of(tmp_path, registry, write_variant):
    """A function that publishes a kernel of one source file, and returns the version."""
    made = iter(range(1000))

    def make(source, version=None, *, variants=(CPU,), **options):
        directory = tmp_path / f"api{next(made)}"
        for variant in variants:
            files = {"__init__.py": source}
            write_variant(directory, variant=variant, files=files, unique="a", **options)
        return publish(directory, registry, REPO, version).version

    return make


def test_the_next_version_follows_the_changes(version_of):
    assert version_of("def f(x): ...\n") == "1.0.0"
    assert version_of("def f(x): return x\n") == "1.0.1"
    assert version_of("def f(x, y=1): ...\n") == "1.1.0"
    assert version_of("def f(x, y=1): return x\n") == "1.1.1"


@pytest.mark.parametrize("version", [None, "1.0.1", "1.1.0"])
def test_an_incompatible_change_is_refused(version_of, version):
    version_of("def f(x): ...\n")
    with pytest.raises(RegistryError, match=r"parameter y is new and required \(torch-cpu\)") as e:
        version_of("def f(x, y): ...\n", version)
    assert "the next version is 2.0.0: set version = 2 in build.toml" in e.value.hint


def test_a_patch_with_a_new_name_is_refused(version_of):
    version_of("def f(x): ...\n", "1.4.2")
    with pytest.raises(RegistryError, match=r"1\.4\.3 cannot follow 1\.4\.2: this is a minor") as e:
        version_of("def f(x): ...\ndef g(): ...\n", "1.4.3")
    assert e.value.hint == "publish as 1.5.0"
    assert version_of("def f(x): ...\ndef g(): ...\n", "1.5.0") == "1.5.0"


def test_only_a_major_version_removes_a_variant(version_of):
    version_of("A = 1\n", variants=(CPU, CUDA))
    with pytest.raises(RegistryError, match="machines of torch-cuda have no variant") as e:
        version_of("A = 2\n", variants=(CPU,))
    assert "kernforge publish build OTHER/build" in e.value.hint


def test_a_backport_is_compared_with_the_version_before_it(version_of):
    version_of("def f(x): ...\n", "1.0.0")
    version_of("def f(x): ...\ndef g(): ...\n", "1.1.0")
    assert version_of("def f(x): return x\n", "1.0.1") == "1.0.1"


# -- a directory: killed at any moment, and several publishers at once --------------------------

CHILD = """
from kernforge.publish.api import publish
from kernforge.registry import DirectoryRegistry

publish(pathlib.Path(sys.argv[3]), DirectoryRegistry(pathlib.Path(root)), "owner/toy")
"""


def child(build, registry, deadly=0):
    return mortal.run(CHILD, registry.root, deadly, build)


def texts(registry, reference="v1"):
    commit = registry.ref(REPO, reference)
    paths = [registry.fetch(REPO, commit, name) for name in registry.variants(REPO, commit)]
    return {(path / "__init__.py").read_text() for path in paths}


def test_a_kill_leaves_a_whole_version(tmp_path, build):
    old, new = build("old", (CPU, CUDA)), build("new", (CPU, CUDA))
    whole = DirectoryRegistry(tmp_path / "whole")
    publish(old, whole, REPO)
    steps = int(child(new, whole).stdout)
    assert steps > 40
    moments = random.Random(5).sample(range(1, steps), 12)
    left = set()
    for moment in {*moments, steps}:
        registry = DirectoryRegistry(tmp_path / f"killed{moment}")
        publish(old, registry, REPO)
        assert child(new, registry, moment).returncode == -signal.SIGKILL
        (text,) = texts(registry)
        left.add(text)
        assert publish(new, registry, REPO).version == "1.0.1"
        assert texts(registry) == {"TEXT = 'new'\n"}
    assert left == {"TEXT = 'old'\n", "TEXT = 'new'\n"}


def test_concurrent_publishers_make_whole_versions(tmp_path, build):
    registry = DirectoryRegistry(tmp_path / "registry")
    builds = [build(text) for text in "abc"]
    with ThreadPoolExecutor(len(builds)) as pool:
        ended = list(pool.map(lambda directory: child(directory, registry), builds))
    assert [process.returncode for process in ended] == [0] * len(builds)
    tags = ("v1.0.0", "v1.0.1", "v1.0.2")
    assert list(registry.refs(REPO)) == ["main", "v1", *tags]
    assert len(set.union(*(texts(registry, tag) for tag in tags))) == len(builds)


def test_a_directory_has_no_private_kernels(build, tmp_path):
    with pytest.raises(UsageError, match="no private kernels"):
        publish(build("a"), DirectoryRegistry(tmp_path / "r"), REPO, private=True)
