# SPDX-License-Identifier: Apache-2.0
import random
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import mortal

from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import Metadata
from kernforge.errors import IntegrityError, RegistryError, UsageError
from kernforge.publish.api import preview, publish
from kernforge.registry.api import find_version
from kernforge.registry.directory import DirectoryRegistry

REPO = "owner/toy"
CPU, CUDA = "torch-cpu", "torch-cuda"


@pytest.fixture
def registry(tmp_path):
    return DirectoryRegistry(tmp_path / "registry")


@pytest.fixture
def build(tmp_path, write_variant):
    """A function that makes a build directory whose variants hold a text."""
    made = iter(range(1000))

    def make(text="", variants=(CPU,), **fields):
        directory = tmp_path / f"build{next(made)}"
        for variant in variants:
            write_variant(
                directory,
                variant=variant,
                files={"__init__.py": f"TEXT = {text!r}\n", "sub/data.txt": f"{variant} {text}"},
                **fields,
            )
        return directory

    return make


def assert_readable(registry, version=1):
    """Everything that the version names is there, whole, and as built; its text."""
    commit = find_version(registry, REPO, version)
    texts = set()
    for variant in registry.variants(REPO, commit):
        path = registry.fetch(REPO, commit, variant)
        metadata = Metadata.from_json(registry.metadata(REPO, commit, variant))
        verify_tree(path, metadata.digest, within=registry.link_root(REPO))
        texts.add((path / "__init__.py").read_text())
    assert len(texts) == 1
    return texts.pop()


def test_the_first_version_is_the_majors_zero(registry, build):
    result = publish(build("a", (CPU, CUDA), version=3), registry, REPO)
    assert (result.version, result.changed, result.variants) == ("3.0.0", True, (CPU, CUDA))
    assert {registry.ref(REPO, name) for name in ("v3", "v3.0.0", "main")} == {result.commit}
    assert result.url.endswith(result.commit)
    assert_readable(registry, 3)


def test_publishing_twice_changes_nothing(registry, build):
    directory = build("a", (CPU, CUDA))
    first = publish(directory, registry, REPO, card="# toy")
    before = {p: p.lstat().st_mtime_ns for p in registry.repo(REPO).rglob("*")}
    second = publish(directory, registry, REPO, card="# toy")
    assert (second.commit, second.version, second.changed) == (first.commit, "1.0.0", False)
    assert {p: p.lstat().st_mtime_ns for p in registry.repo(REPO).rglob("*")} == before


def test_a_farm_adds_variants_to_a_version(registry, build):
    publish(build("a", (CPU,)), registry, REPO)
    result = publish(build("a", (CUDA,)), registry, REPO)
    assert (result.version, result.variants) == ("1.0.0", (CPU, CUDA))
    assert publish(build("a", (CPU,)), registry, REPO).changed is False
    assert registry.variants(REPO, registry.ref(REPO, "v1")) == (CPU, CUDA)


def test_other_bytes_make_the_next_patch_and_no_mixture(registry, build):
    publish(build("a", (CPU, CUDA)), registry, REPO)
    result = publish(build("b", (CPU,)), registry, REPO, part=True)
    assert (result.version, result.variants) == ("1.0.1", (CPU,))
    assert registry.ref(REPO, "v1") == result.commit
    assert registry.variants(REPO, registry.ref(REPO, "v1.0.0")) == (CPU, CUDA)
    assert "'b'" in assert_readable(registry)


def test_a_version_never_changes_what_it_holds(registry, build):
    publish(build("a"), registry, REPO, "1.4.0")
    with pytest.raises(RegistryError, match=r"1\.4\.0 is published with other bytes for torch-cpu"):
        publish(build("b"), registry, REPO, "v1.4.0")
    added = publish(build("b", (CUDA,)), registry, REPO, "1.4.0")
    assert added.variants == (CPU, CUDA)


def test_branches_name_the_newest_version_whatever_the_order(registry, build):
    newest = publish(build("a", version=2), registry, REPO, "2.1.0")
    publish(build("b", version=2), registry, REPO, "2.0.5")
    old = publish(build("c", version=1), registry, REPO)
    assert registry.ref(REPO, "v2") == registry.ref(REPO, "main") == newest.commit
    assert registry.ref(REPO, "v1") == old.commit


def test_the_card_is_the_versions_and_stays(registry, build):
    publish(build("a"), registry, REPO, card="# one")
    result = publish(build("a", (CUDA,)), registry, REPO)
    assert (registry.snapshot(REPO, result.commit) / "README.md").read_text() == "# one"
    result = publish(build("a"), registry, REPO, card="# two")
    assert (registry.snapshot(REPO, result.commit) / "README.md").read_text() == "# two"
    assert (result.version, result.changed, result.variants) == ("1.0.0", True, (CPU, CUDA))


def test_a_publisher_killed_between_references_is_repaired_by_the_next(registry, build):
    directory = build("a")
    result = publish(directory, registry, REPO)
    for name in ("v1", "main"):
        (registry.repo(REPO) / "refs" / name).unlink()
    assert publish(directory, registry, REPO).changed
    assert registry.ref(REPO, "v1") == registry.ref(REPO, "main") == result.commit


def test_variants_of_two_kernels_or_versions_are_refused(registry, build, write_variant):
    directory = build("a")
    write_variant(directory, variant=CUDA, version=2)
    with pytest.raises(RegistryError, match="not of one kernel and version"):
        publish(directory, registry, REPO)
    write_variant(directory, variant=CUDA, name="other")
    with pytest.raises(RegistryError, match="torch-cuda is other version 1"):
        publish(directory, registry, REPO)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.0.0", "does not begin with 1"),
        ("1.0", "is not a version"),
        ("1.0.0rc1", "is not a version"),
    ],
)
def test_an_impossible_version_is_refused(registry, build, version, words):
    with pytest.raises(UsageError, match=words):
        publish(build("a"), registry, REPO, version)


def test_what_was_not_built_so_is_not_published(registry, build, tmp_path):
    directory = build("a")
    (directory / CPU / "sub/data.txt").write_text("tampered")
    with pytest.raises(IntegrityError, match=r"changed: sub/data\.txt"):
        publish(directory, registry, REPO)
    with pytest.raises(IntegrityError, match="has no SHA-256 digest"):
        publish(build("a", digest=False), registry, REPO)
    with pytest.raises(UsageError, match="is not a directory"):
        publish(tmp_path / "empty", registry, REPO)
    assert registry.ref_names(REPO) == ()


def test_bytecode_and_foreign_folders_stay_behind(registry, build):
    directory = build("a")
    (directory / CPU / "__pycache__").mkdir()
    (directory / CPU / "__pycache__/x.pyc").write_bytes(b"")
    (directory / "notes").mkdir()
    result = publish(directory, registry, REPO)
    assert sorted(registry.tree(REPO, result.commit)) == [
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/metadata.json",
        "build/torch-cpu/sub/data.txt",
    ]


def test_bytecode_that_another_client_left_in_a_registry_does_not_count(registry, build):
    directory = build("a")
    commit = publish(directory, registry, REPO).commit
    cache = registry.fetch(REPO, commit, CPU) / "__pycache__"
    cache.mkdir()
    (cache / "__init__.cpython-311.pyc").write_bytes(b"code")
    again = publish(directory, registry, REPO)
    assert (again.version, again.changed, again.commit) == ("1.0.0", False, commit)


def test_a_generated_card_gives_way_to_an_authors(registry, build):
    generated = "# toy {}\n<!-- This card was generated by kernforge. -->\n".format
    first = publish(build("a"), registry, REPO, card=generated)
    path = registry.snapshot(REPO, first.commit) / "README.md"
    assert path.read_text().startswith("# toy ['torch-cpu']")
    publish(build("a"), registry, REPO, card="# by hand")
    last = publish(build("a"), registry, REPO, card=generated)
    assert (registry.snapshot(REPO, last.commit) / "README.md").read_text() == "# by hand"


def branch_texts(registry, branch):
    """The text of each variant of a branch."""
    commit = registry.ref(REPO, branch)
    return {
        name: (registry.fetch(REPO, commit, name) / "sub" / "data.txt").read_text()
        for name in registry.variants(REPO, commit)
    }


def test_a_branch_has_the_newest_of_each_variant_and_no_version(registry, build):
    version = publish(build("a", (CPU, CUDA)), registry, REPO)
    first = publish(build("b", (CPU, CUDA)), registry, REPO, branch="dev", card="# toy")
    assert (first.version, first.branch, first.status) == (None, "dev", "uploaded")
    again = publish(build("c", (CPU,)), registry, REPO, branch="dev")
    assert (again.choice.replaced, again.choice.kept) == ((CPU,), (CUDA,))
    assert branch_texts(registry, "dev") == {CPU: f"{CPU} c", CUDA: f"{CUDA} b"}
    snapshot = registry.snapshot(REPO, again.commit)
    assert (snapshot / "README.md").read_text() == "# toy"
    same = publish(build("c", (CPU,)), registry, REPO, branch="dev")
    assert (same.status, same.commit) == ("no_changes", again.commit)
    assert registry.ref_names(REPO) == ("dev", "main", "v1", "v1.0.0")
    assert find_version(registry, REPO, 1) == version.commit
    assert assert_readable(registry) == "TEXT = 'a'\n"


def test_a_single_variant_can_be_published(registry, build):
    assert publish(build("a") / CPU, registry, REPO).variants == (CPU,)


@pytest.fixture
def version_of(registry, tmp_path, write_variant):
    """A function that publishes a kernel of one source file, and tells the version."""
    made = iter(range(1000))

    def make(source, version=None, *, variants=(CPU,), doing=publish, **options):
        directory = tmp_path / f"api{next(made)}"
        for variant in variants:
            write_variant(
                directory, variant=variant, files={"__init__.py": source}, unique="a", **options
            )
        found = doing(directory, registry, REPO, version)
        return found.version

    return make


def test_the_next_version_says_what_changed(version_of):
    assert version_of("def f(x): ...\n") == "1.0.0"
    assert version_of("def f(x): return x\n") == "1.0.1"
    assert version_of("def f(x, y=1): ...\n") == "1.1.0"
    assert version_of("def f(x, y=1): return x\n") == "1.1.1"
    assert version_of("def f(x, y=1): ...\ndef g(): ...\n", doing=preview) == (1, 2, 0)
    assert version_of("def f(x, y=1): return 2\n") == "1.1.2"


@pytest.mark.parametrize("version", [None, "1.0.1", "1.1.0"])
def test_a_broken_promise_is_refused_and_named(version_of, registry, version):
    version_of("def f(x): ...\n")
    with pytest.raises(
        RegistryError, match=r"f: parameter y is new and required \(torch-cpu\)"
    ) as e:
        version_of("def f(x, y): ...\n", version)
    assert "the next version is 2.0.0: set version = 2 in build.toml" in e.value.hint
    assert list(registry.ref_names(REPO)) == ["main", "v1", "v1.0.0"]


def test_a_patch_that_adds_is_refused_with_the_right_number(version_of):
    version_of("def f(x): ...\n", "1.4.2")
    with pytest.raises(RegistryError, match=r"1\.4\.3 cannot follow 1\.4\.2: this is a minor") as e:
        version_of("def f(x): ...\ndef g(): ...\n", "1.4.3")
    assert "g is new (torch-cpu)" in e.value.message
    assert e.value.hint == "publish as 1.5.0"
    assert version_of("def f(x): ...\ndef g(): ...\n", "1.5.0") == "1.5.0"


def test_a_variant_may_go_only_with_a_major_version(version_of):
    version_of("A = 1\n", variants=(CPU, CUDA))
    with pytest.raises(RegistryError, match="machines of torch-cuda have no variant") as e:
        version_of("A = 2\n", variants=(CPU,))
    assert "--part" in e.value.hint


def test_a_backport_is_held_against_the_version_before_it(version_of):
    version_of("def f(x): ...\n", "1.0.0")
    version_of("def f(x): ...\ndef g(): ...\n", "1.1.0")
    assert version_of("def f(x): return x\n", "1.0.1") == "1.0.1"


def test_narrower_device_code_is_a_major_change(version_of):
    options = {"variants": (CUDA,), "backend": "cuda"}
    version_of("A = 1\n", archs=("8.0", "9.0"), **options)
    with pytest.raises(RegistryError, match=r"no device code for 9\.0 any more \(torch-cuda\)"):
        version_of("A = 2\n", archs=("8.0",), **options)
    assert version_of("A = 2\n", archs=("8.0", "9.0", "10.0"), **options) == "1.0.1"


CHILD = """
from kernforge.publish.api import publish
from kernforge.registry import DirectoryRegistry

publish(pathlib.Path(sys.argv[3]), DirectoryRegistry(pathlib.Path(root)), "owner/toy")
"""


def child(build, registry, deadly=0):
    return mortal.run(CHILD, registry.root, deadly, build)


def test_a_kill_at_any_moment_leaves_a_whole_version(tmp_path, build):
    old, new = build("old", (CPU, CUDA)), build("new", (CPU, CUDA))
    whole = DirectoryRegistry(tmp_path / "whole")
    publish(old, whole, REPO)
    steps = int(child(new, whole).stdout)
    assert steps > 40
    moments = random.Random(5).sample(range(1, steps), 20)
    left = set()
    for moment in {*moments, steps}:
        registry = DirectoryRegistry(tmp_path / f"killed{moment}")
        publish(old, registry, REPO)
        assert child(new, registry, moment).returncode == -signal.SIGKILL
        left.add(assert_readable(registry))
        result = publish(new, registry, REPO)
        assert result.version == "1.0.1"
        assert "'new'" in assert_readable(registry)
        assert not list(registry.root.rglob("tmp-*"))
    assert left == {"TEXT = 'old'\n", "TEXT = 'new'\n"}


def test_concurrent_publishers_all_end_up_in(registry, build):
    names = [CPU, CUDA, "torch-rocm", "torch-xpu", "torch-universal"]
    with ThreadPoolExecutor(len(names)) as pool:
        ended = pool.map(lambda name: child(build("a", (name,)), registry), names)
        assert [process.returncode for process in ended] == [0] * len(names)
    assert registry.variants(REPO, registry.ref(REPO, "v1")) == tuple(sorted(names))
    assert list(registry.ref_names(REPO)) == ["main", "v1", "v1.0.0"]
    assert_readable(registry)
