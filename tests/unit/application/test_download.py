# SPDX-License-Identifier: Apache-2.0
import itertools
import os
import random
import signal
import tarfile
from dataclasses import replace

import pytest
from support import mortal
from support.registries import commit_of
from support.variants import contents, replace_linked

from kernforge.application import download, project_lock
from kernforge.application.download import Selection, parse_platform, platform_name
from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import Metadata
from kernforge.errors import IntegrityError, NoVariantError, UsageError
from kernforge.loader import lock
from kernforge.loader.resolve import resolve
from kernforge.loader.search import Search
from kernforge.publish.api import publish
from kernforge.registry.directory import Chain, DirectoryRegistry
from kernforge.registry.hub import HubEndpoint, HubRegistry
from kernforge.registry.names import request
from kernforge.system import files
from kernforge.system.environment import Environment

OUTER, INNER = "owner/outer", "owner/inner"
CPU, CUDA = "torch-cpu", "torch-cuda"
HERE = Selection(hosts=(parse_platform("torch2.11-cpu-x86_64-linux"),))
GPU = Selection(hosts=(parse_platform("torch2.11-cu130-x86_64-linux"),))
_unique = (f"{number:07x}" for number in itertools.count(0x200))


@pytest.fixture
def registry(tmp_path, write_variant):
    """A registry with a kernel for two backends, whose CPU build depends on another kernel."""
    found = DirectoryRegistry(tmp_path / "registry")
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    write_variant(inner, unique=next(_unique))
    publish(inner, found, INNER, "1.1.0")
    files_of = {"__init__.py": "A = 1\n", "sub/data.txt": "x" * 1000}
    write_variant(outer, unique=next(_unique), files=files_of, depends={INNER: 1})
    write_variant(outer, unique=next(_unique), files=files_of, variant=CUDA, backend="cuda")
    publish(outer, found, OUTER, "1.0.0")
    return found


@pytest.fixture
def outer(registry):
    return request(OUTER, 1)


def search_in(registry, **options):
    return Search(registry, None, Environment({}), **options)


def fetched(registry, depend, selection, **options):
    return list(download.fetch(search_in(registry, **options), [depend], selection))


def names(found):
    return [(answer.repo_id, one.path.name) for answer, one in found]


def assert_whole(target, found):
    for answer, one in found:
        assert_intact(target, answer.repo_id, answer.commit, one.path.name)


def assert_intact(target, repo_id, commit, variant):
    path = target.fetch(repo_id, commit, variant)
    metadata = Metadata.from_json((path / "metadata.json").read_bytes())
    verify_tree(path, metadata.digest, within=target.link_root(repo_id))


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (HERE, [(OUTER, CPU), (INNER, CPU)]),
        (GPU, [(OUTER, CUDA)]),
        (Selection(names=(CUDA,)), [(OUTER, CUDA)]),
        (Selection(), [(OUTER, CPU), (OUTER, CUDA), (INNER, CPU)]),
    ],
)
def test_a_machines_variants_are_fetched_with_dependencies(registry, outer, selection, wanted):
    assert names(fetched(registry, outer, selection)) == wanted


def test_a_chain_fetches_from_the_registry_with_the_kernel(registry, outer, tmp_path):
    chain = Chain((DirectoryRegistry(tmp_path / "empty"), registry))
    assert names(fetched(chain, outer, HERE)) == [(OUTER, CPU), (INNER, CPU)]


def test_a_missing_variant_is_an_error_with_the_reason(registry, outer):
    with pytest.raises(
        NoVariantError, match=r"owner/outer at .* has no variant torch-xpu"
    ) as error:
        fetched(registry, outer, Selection(names=("torch-xpu",)))
    assert "torch-cpu, torch-cuda" in error.value.hint
    rocm = Selection(hosts=(parse_platform("torch2.11-rocm72-x86_64-linux"),))
    with pytest.raises(
        NoVariantError, match="torch-cuda: is for cuda, kernels are wanted for rocm"
    ) as error:
        fetched(registry, outer, rocm)
    # Options of the command, not arguments of a function.
    assert error.value.hint == (
        "--variant torch-cpu takes the build for the CPU; or name the machine that it is for: "
        "--platform"
    )


def test_a_copy_has_the_same_commits_and_names(registry, outer, tmp_path):
    target = DirectoryRegistry(tmp_path / "copy")
    found = fetched(registry, outer, HERE)
    assert [download.copy(*one, target) for one in found] == [True, True]
    assert_whole(target, found)
    for repo_id in (OUTER, INNER):
        assert commit_of(target, repo_id, 1) == commit_of(registry, repo_id, 1)
        assert target.refs(repo_id) == registry.refs(repo_id)
        assert target.variants(repo_id, commit_of(target, repo_id, 1)) == (CPU,)
    # Another machine's build joins it; what is there is not written again.
    more = fetched(registry, outer, Selection())
    assert [download.copy(*one, target) for one in more] == [False, True, False]
    assert target.variants(OUTER, commit_of(target, OUTER, 1)) == (CPU, CUDA)
    assert names(fetched(target, outer, GPU)) == [(OUTER, CUDA)]


def test_a_corrupt_copy_is_repaired_and_a_corrupt_source_refused(registry, outer, tmp_path):
    target = DirectoryRegistry(tmp_path / "copy")
    found = fetched(registry, outer, GPU)
    download.copy(*found[0], target)
    data = target.fetch(OUTER, found[0][0].commit, CUDA) / "sub/data.txt"
    data.resolve().write_text("damaged")
    assert download.copy(*found[0], target)
    assert_whole(target, found)
    data.unlink()
    data.with_name("mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"not of the variant.*: sub/mine\.txt"):
        download.copy(*found[0], target)
    assert data.with_name("mine.txt").read_text() == "mine"
    original = registry.fetch(OUTER, found[0][0].commit, CUDA) / "sub/data.txt"
    original.resolve().write_text("tampered")
    with pytest.raises(IntegrityError, match=r"changed: sub/data\.txt"):
        fetched(registry, outer, GPU)


@pytest.fixture
def locks(registry, tmp_path):
    root = tmp_path / "app"
    root.mkdir()
    (root / "pyproject.toml").write_text(f'[tool.kernels.dependencies]\n"{OUTER}" = 1\n')
    project_lock.lock(project_lock.read(root), registry)
    return lock.read(root / "kernels.lock")


def test_a_lock_fetches_its_commits_despite_newer_versions(registry, locks, tmp_path, released):
    for repo_id, version in ((OUTER, "1.1.0"), (INNER, "1.2.0")):
        source = "A = ANSWER = name = 2\n"
        released(repo_id, version, variants=(CPU, CUDA), files={"__init__.py": source})
    (wanted,) = download.asked_kernels(locks)
    found = fetched(registry, wanted, HERE, locks=locks)
    assert {answer.repo_id: answer.commit for answer, _ in found} == {
        k.depend.repo_id: k.commit for k in locks.kernels
    }
    target = DirectoryRegistry(tmp_path / "copy")
    for one in found:
        download.copy(*one, target)
    # In the copy the major version is what was locked.
    assert commit_of(target, OUTER, 1) == found[0][0].commit
    assert commit_of(target, INNER, 1) == found[1][0].commit


def test_a_commit_changed_after_the_lock_is_refused(registry, locks, outer):
    commit = commit_of(registry, OUTER, 1)
    path = registry.fetch(OUTER, commit, CPU) / "metadata.json"
    document = path.read_bytes()
    replace_linked(path, document.replace(b"Apache-2.0", b"MIT"))
    with pytest.raises(IntegrityError, match="is not what was locked"):
        fetched(registry, outer, HERE, locks=locks)
    unheld = replace(locks, pins=None)
    assert len(download.asked_kernels(unheld)) == 2
    assert fetched(registry, outer, HERE, locks=unheld)


def test_a_tar_is_reproducible(registry, outer, tmp_path):
    made = []
    for name, umask in (("a", 0o022), ("b", 0o077)):
        before = os.umask(umask)
        try:
            with files.staging(tmp_path / name) as staged:
                for one in fetched(registry, outer, Selection()):
                    download.copy(*one, DirectoryRegistry(staged))
                download.write_tar(staged, tmp_path / name / "kernels.tar")
        finally:
            os.umask(before)
        made.append((tmp_path / name / "kernels.tar").read_bytes())
        assert [path.name for path in (tmp_path / name).iterdir()] == ["kernels.tar"]
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "a/kernels.tar") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    unpacked = DirectoryRegistry(tmp_path / "unpacked")
    assert_whole(unpacked, fetched(unpacked, outer, Selection()))


CHILD = """
from kernforge.application import download
from kernforge.registry.names import request
from kernforge.loader.resolve import resolve
from kernforge.loader.search import Search
from kernforge.registry import DirectoryRegistry
from kernforge.system.environment import Environment

registry = DirectoryRegistry(pathlib.Path(sys.argv[3]))
wanted = request("owner/outer", 1)
search = Search(registry, None, Environment({}))
for one in download.fetch(search, [wanted], download.Selection()):
    download.copy(*one, DirectoryRegistry(pathlib.Path(root)))
"""


def child(registry, root, deadly=0):
    return mortal.run(CHILD, root, deadly, registry.root)


def test_a_killed_download_is_whole_and_resumed(registry, outer, tmp_path):
    steps = int(child(registry, tmp_path / "whole").stdout)
    assert steps > 40
    for moment in random.Random(7).sample(range(1, steps), 8):
        target = DirectoryRegistry(tmp_path / f"killed{moment}")
        assert child(registry, target.root, moment).returncode == -signal.SIGKILL
        for repo_id in (OUTER, INNER):
            for commit in target.commits(repo_id):
                for variant in target.variants(repo_id, commit):
                    assert_intact(target, repo_id, commit, variant)
        assert child(registry, target.root).returncode == 0
        assert_whole(target, fetched(registry, outer, Selection()))


def test_a_hub_is_locked_without_downloading_binaries(hub, tmp_path, write_variant):
    for variant in (CPU, CUDA):
        files_of = {"__init__.py": "A = 1\n", "big.so": variant * 1000}
        write_variant(tmp_path / "build", variant=variant, files=files_of, unique="abc")
    tree = contents(tmp_path / "build")
    commit = hub.add(OUTER, "v1", tree)
    registry = HubRegistry(HubEndpoint(url=hub.url, cache=tmp_path / "cache"))
    root = tmp_path / "app"
    root.mkdir()
    (root / "pyproject.toml").write_text(f'[tool.kernels.dependencies]\n"{OUTER}" = 1\n')
    project_lock.lock(project_lock.read(root), registry)
    assert not any("big.so" in str(request) for request in hub.requests)
    hub.add(OUTER, "v1", {**tree, "build/torch-cpu/__init__.py": b"B = 1\n"})
    locks = lock.read(root / "kernels.lock")
    search = search_in(registry, locks=locks, trust_remote_code=True)
    (found,) = download.fetch(search, download.asked_kernels(locks), HERE)
    target = DirectoryRegistry(tmp_path / "copy")
    assert found[0].commit == commit
    assert download.copy(*found, target)
    assert_whole(target, [found])
    assert commit_of(target, OUTER, 1) == commit


# -- names of platforms -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        ("torch2.11-cu130-x86_64-linux", "torch211-cxx11-cu130-x86_64-linux"),
        ("torch2.11-cpu-aarch64-linux", "torch-stable-abi210-cpu-aarch64-linux"),
        ("torch2.12-rocm72-x86_64-linux", "torch212-cxx11-rocm72-x86_64-linux"),
        ("torch2.12-metal-aarch64-darwin", "torch212-metal-aarch64-darwin"),
        ("cpu-x86_64-linux", "torch-cpu"),
    ],
)
def test_a_short_name_selects_the_fitting_variant(text, variant):
    assert platform_name(parse_platform(text)) == text
    assert resolve([variant, "torch-xpu"], parse_platform(text)).best.name == variant


@pytest.mark.parametrize(
    "text", ["", "cu130", "torch2-cpu-x86_64-linux", "torch2.11-gpu-x86_64-linux"]
)
def test_an_invalid_platform_is_refused(text):
    with pytest.raises(UsageError, match=r"is not a platform|is not a backend"):
        parse_platform(text)
