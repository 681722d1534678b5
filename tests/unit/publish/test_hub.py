# SPDX-License-Identifier: Apache-2.0

import copy
import json
import os
import subprocess
import sys

import pytest
from support.hub_server import READER, WRITER

from kernforge.artifact.metadata import Metadata
from kernforge.errors import (
    KernforgeError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    UsageError,
)
from kernforge.publish.api import preview, publish
from kernforge.registry.api import find_version, open_registry
from kernforge.registry.directory import DirectoryRegistry

pytest.importorskip("huggingface_hub")
# The hub's own client hands files to its HTTP library in a way that the latter wants changed.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
REPO = "owner/toy"
CPU, CUDA = "torch-cpu", "torch-cuda"
WRITES = {"POST", "PUT", "DELETE"}


@pytest.fixture(autouse=True)
def environment(usual_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", WRITER)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)


@pytest.fixture
def build(tmp_path, write_variant):
    """Lay out builds whose files say ``text``."""

    def make(text, variants=(CPU,), version=1):
        directory = tmp_path / f"build-{text}-{'-'.join(variants)}-{version}"
        for name in variants:
            write_variant(
                directory,
                variant=name,
                backend=name.removeprefix("torch-"),
                files={"__init__.py": f"TEXT = {text!r}\n", "toy.so": text * 99, "empty.py": ""},
                unique=f"{len(text):07x}",
                version=version,
            )
        return directory

    return make


def fresh():
    """The hub as a new process would see it."""
    from kernforge.registry.api import _hub  # noqa: PLC0415

    _hub.cache_clear()
    return open_registry("hf://")


def texts(version=1):
    """What a reader finds: variant to the text of its build, whole."""
    registry = fresh()
    commit = find_version(registry, REPO, version)
    found = {}
    for name in registry.variants(REPO, commit or ""):
        path = registry.fetch(REPO, commit, name)
        from kernforge.artifact.integrity import verify_tree  # noqa: PLC0415

        metadata = Metadata.from_json(registry.metadata(REPO, commit, name), source=name)
        verify_tree(path, metadata.digest, within=registry.link_root(REPO))
        found[name] = (path / "__init__.py").read_text().split("'")[1]
    return found


def test_a_first_version_makes_the_kernel_its_branch_tag_and_card(hub, build):
    result = publish(build("a", (CPU, CUDA)), fresh(), REPO, card="# toy\n")
    repo = hub.repos[REPO]
    assert (result.version, result.status, result.branch) == ("1.0.0", "uploaded", "v1")
    assert result.url == f"{hub.url}/kernels/{REPO}/tree/v1.0.0"
    assert repo.tags == {"v1.0.0": result.commit}
    assert sorted(repo.branches) == ["main", "v1"]
    assert repo.branches["v1"] == result.commit
    assert hub.files(REPO, "main")["README.md"] == b"# toy\n"
    assert texts() == {CPU: "a", CUDA: "a"}
    assert repo.commits[result.commit][f"build/{CPU}/toy.so"].large
    assert not repo.private


def test_publishing_twice_changes_nothing(hub, build):
    first = publish(build("a", (CPU, CUDA)), fresh(), REPO, card="# toy")
    hub.counted()
    second = publish(build("a", (CPU, CUDA)), fresh(), REPO, card="# toy")
    assert (second.commit, second.status) == (first.commit, "no_changes")
    assert not [line for line in hub.counted() if "commit" in line or "tag" in line]


def test_variants_are_added_and_other_bytes_make_the_next_version(hub, build):
    publish(build("a", (CPU,)), fresh(), REPO)
    added = publish(build("a", (CUDA,)), fresh(), REPO)
    assert (added.version, added.variants) == ("1.0.0", (CPU, CUDA))
    assert hub.repos[REPO].tags == {"v1.0.0": added.commit}
    following = publish(build("b", (CPU,)), fresh(), REPO, part=True)
    assert (following.version, following.variants) == ("1.0.1", (CPU,))
    assert texts() == {CPU: "b"}
    assert texts("1.0.0") == {CPU: "a", CUDA: "a"}
    assert f"build/{CUDA}/toy.so" not in hub.files(REPO, "v1")


def test_an_older_version_leaves_the_branch_alone(hub, build):
    publish(build("a"), fresh(), REPO, "1.0.0")
    newest = publish(build("c"), fresh(), REPO, "1.2.0")
    older = publish(build("b"), fresh(), REPO, "1.0.1")
    assert hub.repos[REPO].branches["v1"] == newest.commit
    assert hub.repos[REPO].tags["v1.0.1"] == older.commit
    assert sorted(hub.repos[REPO].branches) == ["main", "v1"]
    assert texts() == {CPU: "c"}
    assert texts("1.0.1") == {CPU: "b"}


def test_what_another_tool_uploaded_stays_unless_it_is_replaced(hub, build):
    for name in (CPU, CUDA):
        path = build("theirs", (CPU, CUDA)) / name
        files = {f"build/{name}/{p.name}": p.read_bytes() for p in path.iterdir()}
        hub.add(REPO, "v1", {**files, "benchmarks/benchmark.py": b"1"})
    result = publish(build("ours", (CPU,)), fresh(), REPO)
    assert result.version == "1.0.0"
    assert texts() == {CPU: "ours", CUDA: "theirs"}
    assert hub.files(REPO, "v1")["benchmarks/benchmark.py"] == b"1"


def branch_texts(hub, branch):
    """The text of each variant of a branch, and the other files of its build folder."""
    found = hub.files(REPO, branch)
    return {path: data for path, data in found.items() if path.endswith("__init__.py")}


def test_a_branch_has_the_newest_of_each_variant_and_no_tag(hub, build):
    first = publish(build("a", (CPU, CUDA)), fresh(), REPO, branch="dev", card="# toy\n")
    assert (first.version, first.branch, first.status) == (None, "dev", "uploaded")
    assert first.url == f"{hub.url}/kernels/{REPO}/tree/dev"
    repo = hub.repos[REPO]
    assert (sorted(repo.branches), repo.tags) == (["dev", "main"], {})
    assert hub.files(REPO, "main")["README.md"] == b"# toy\n"
    again = publish(build("b", (CPU,)), fresh(), REPO, branch="dev")
    assert (again.choice.replaced, again.choice.kept) == ((CPU,), (CUDA,))
    texts = {f"build/{CPU}/__init__.py": b"TEXT = 'b'\n"}
    texts[f"build/{CUDA}/__init__.py"] = b"TEXT = 'a'\n"
    assert branch_texts(hub, "dev") == texts
    hub.counted()
    same = publish(build("b", (CPU,)), fresh(), REPO, branch="dev")
    assert (same.status, same.commit) == ("no_changes", again.commit)
    assert not [line for line in hub.counted() if "commit" in line]


def test_a_new_branch_does_not_inherit_the_variants_of_main(hub, build):
    publish(build("a", (CPU, CUDA)), fresh(), REPO, branch="main")
    assert len(branch_texts(hub, "main")) == 2
    publish(build("b", (CPU,)), fresh(), REPO, branch="dev")
    assert branch_texts(hub, "dev") == {f"build/{CPU}/__init__.py": b"TEXT = 'b'\n"}
    assert sorted(hub.repos[REPO].branches) == ["dev", "main"]


def test_a_pull_request_for_a_branch(hub, build):
    publish(build("a"), fresh(), REPO, branch="dev")
    proposed = publish(build("b"), fresh(), REPO, branch="dev", create_pr=True)
    assert proposed.status == "pull_request_created"
    assert [branch for branch, _ in proposed.pull_requests] == ["dev"]
    assert branch_texts(hub, "dev") == {f"build/{CPU}/__init__.py": b"TEXT = 'a'\n"}


def test_publishers_of_a_branch_at_the_same_time_all_end_up_in(hub, build):
    others = iter([(CUDA,), ("torch-rocm",)])

    def meanwhile(_repo_id, _branch):
        names = next(others, None)
        if names:
            hub.lock.release()  # the other publisher is served by another thread
            try:
                publish(build("a", names), fresh(), REPO, branch="x")
            finally:
                hub.lock.acquire()

    hub.on_commit = meanwhile
    publish(build("b"), fresh(), REPO, branch="x")
    assert len(branch_texts(hub, "x")) == 3
    assert sorted(hub.repos[REPO].branches) == ["main", "x"]


def test_a_preview_writes_nothing(hub, build):
    assert preview(build("a"), fresh(), REPO).version == (1, 0, 0)
    assert REPO not in hub.repos


def test_a_private_kernel_stays_private(hub, build):
    publish(build("a"), fresh(), REPO, private=True)
    assert hub.repos[REPO].private
    publish(build("a"), fresh(), "owner/public")
    with pytest.raises(RegistryError, match="and is public"):
        publish(build("b"), fresh(), "owner/public", private=True)
    assert texts() == {CPU: "a"}


def test_a_pull_request_publishes_nothing_yet(hub, build, monkeypatch):
    publish(build("a"), fresh(), REPO, card="# one")
    before = dict(hub.repos[REPO].branches), dict(hub.repos[REPO].tags)
    monkeypatch.setenv("HF_TOKEN", READER)
    result = publish(build("b"), fresh(), REPO, card="# two", create_pr=True)
    assert result.status == "pull_request_created"
    assert [branch for branch, _ in result.pull_requests] == ["v1", "main"]
    assert all(url.startswith(hub.url) for _, url in result.pull_requests)
    after = {n: c for n, c in hub.repos[REPO].branches.items() if "/pr/" not in n}
    assert (after, hub.repos[REPO].tags) == before
    assert b"'b'" in hub.files(REPO, "refs/pr/1")[f"build/{CPU}/__init__.py"]
    assert hub.files(REPO, "refs/pr/2")["README.md"] == b"# two"


def test_a_directory_has_no_pull_requests(build, tmp_path):
    with pytest.raises(UsageError, match="neither private kernels nor pull requests"):
        publish(build("a"), DirectoryRegistry(tmp_path / "r"), REPO, create_pr=True)


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (("", "owner"), "requires a token for"),
        ((READER, "owner"), "does not allow"),
        ((WRITER, "forbidden"), "rights"),
    ],
)
def test_who_may_not_publish_gets_the_reason(hub, build, monkeypatch, who, words):
    monkeypatch.setenv("HF_TOKEN", who[0])
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", os.devnull)
    hub.forbidden.add("forbidden")
    with pytest.raises(RegistryError, match=words):
        publish(build("a"), fresh(), f"{who[1]}/toy")


def test_offline_nothing_is_published(build, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE"):
        publish(build("a"), fresh(), REPO)


@pytest.mark.parametrize("line", ["POST .*/commit/", "PUT /upload/", "POST .*/preupload/", "batch"])
@pytest.mark.parametrize("kind", [500, 429, "drop"])
def test_what_may_pass_is_tried_again(hub, build, line, kind):
    hub.fault(line, kind)
    result = publish(build("a"), fresh(), REPO)
    assert (result.version, texts()) == ("1.0.0", {CPU: "a"})
    assert [branch for branch, _ in hub.repos[REPO].history].count("publishing-v1.0.0") == 2


def test_a_commit_whose_answer_is_lost_is_not_made_twice(hub, build):
    publish(build("a"), fresh(), REPO)
    before = len(hub.repos[REPO].commits)
    hub.fault("POST .*/commit/", "cut")
    result = publish(build("b"), fresh(), REPO)
    assert (result.version, texts()) == ("1.0.1", {CPU: "b"})
    assert len(hub.repos[REPO].commits) == before + 1


def test_publishers_at_the_same_time_all_end_up_in(hub, build):
    publish(build("a", (CPU,)), fresh(), REPO)
    others = iter([(CUDA,), ("torch-rocm",), ("torch-xpu",)])

    def meanwhile(_repo_id, _branch):
        names = next(others, None)
        if names:
            hub.lock.release()  # the other publisher is served by another thread
            try:
                publish(build("a", names), fresh(), REPO)
            finally:
                hub.lock.acquire()

    hub.on_commit = meanwhile
    publish(build("a", ("torch-tpu",)), fresh(), REPO)
    names = {CPU, CUDA, "torch-rocm", "torch-xpu", "torch-tpu"}
    assert texts() == dict.fromkeys(names, "a")
    assert hub.repos[REPO].tags["v1.0.0"] == hub.repos[REPO].branches["v1"]
    assert list(hub.repos[REPO].tags) == ["v1.0.0"]


@pytest.mark.parametrize("served", [False, True])
def test_an_end_at_any_request_leaves_a_whole_version(hub, build, served):
    """Each request that changes something is once the first that the hub does not answer."""
    old, added = build("a", (CPU,)), build("a", (CUDA,))
    publish(old, fresh(), REPO, card="# toy")
    before, objects = copy.deepcopy(hub.repos[REPO]), dict(hub.objects)
    start = len(hub.requests)
    publish(added, fresh(), REPO, card="# toy")
    writes = sum(line[0] in WRITES for line in hub.requests[start:])
    assert writes >= 7
    answer = hub.next_fault
    for first in range(writes):
        hub.repos[REPO], hub.objects = copy.deepcopy(before), dict(objects)
        left = [first]

        def deadly(line, left=left):
            if line.split()[0] in WRITES:
                left[0] -= 1
            if left[0] >= 0:
                return None
            return "cut" if served and left[0] == -1 else 503

        hub.next_fault = deadly
        with pytest.raises(KernforgeError):
            publish(added, fresh(), REPO, card="# toy")
        hub.next_fault = answer
        assert texts() in ({CPU: "a"}, {CPU: "a", CUDA: "a"})
        publish(added, fresh(), REPO, card="# toy")
        assert texts() == texts("1.0.0") == {CPU: "a", CUDA: "a"}
        assert list(hub.repos[REPO].tags) == ["v1.0.0"]
        assert sorted(hub.repos[REPO].branches) == ["main", "v1"]


def test_thousands_of_files_are_several_commits(hub, tmp_path, write_variant):
    files = {f"f{n}.py": str(n) for n in range(1100)}
    write_variant(tmp_path / "build", variant=CPU, files={"__init__.py": "", **files})
    publish(tmp_path / "build", fresh(), REPO)
    assert len([p for p in hub.files(REPO, "v1") if p.startswith(f"build/{CPU}/")]) == 1102
    steps = [commit for branch, commit in hub.repos[REPO].history if branch == "publishing-v1.0.0"]
    assert len(steps) == 3, "the new branch, and two commits onto it"
    assert ("v1", steps[-1]) in hub.repos[REPO].history


def test_the_command_says_all_in_one_document(hub, build, tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    (project / "build.toml").write_text(
        '[general]\nname = "toy"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n'
        "[torch-noarch]\n"
    )
    argv = [sys.executable, "-m", "kernforge", "publish", str(project), "--json", "--repo-id", REPO]
    argv += ["--build-dir", str(build("a")), "--registry", "hf://"]
    monkeypatch.setenv("KERNFORGE_USER_AGENT", "1")
    hub.user_agents.clear()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    # As the requests of a load do; but for two that huggingface_hub makes without its own name.
    paths = [path for _, path in hub.requests[-len(hub.user_agents) :]]
    told = [
        text
        for path, text in zip(paths, hub.user_agents, strict=True)
        if not path.startswith(("/upload/", "/api/agent-harnesses"))
    ]
    assert len(told) > 3
    assert all("backend/" in text and "file_type/kernel" in text for text in told)
    document = json.loads(done.stdout)
    assert document["status"] == "uploaded"
    assert (document["version"], document["branch"], document["variants"]) == ("1.0.0", "v1", [CPU])
    assert document["pull_requests"] == []
    assert done.stderr == ""


def test_a_generated_card_gives_way_to_an_authors(hub, build):
    generated = "# toy {}\n\n<!-- This card was generated by kernforge. -->\n"
    publish(build("a"), fresh(), REPO, card=generated.format)
    assert hub.files(REPO, "main")["README.md"].startswith(b"# toy ['torch-cpu']")
    publish(build("a", (CUDA,)), fresh(), REPO, card=generated.format)
    assert hub.files(REPO, "main")["README.md"].startswith(b"# toy ['torch-cpu', 'torch-cuda']")
    publish(build("a"), fresh(), REPO, card="# by hand\n")
    publish(build("a"), fresh(), REPO, card=generated.format)
    assert hub.files(REPO, "main")["README.md"] == b"# by hand\n"


def test_a_kernel_that_is_not_there_is_not_proposed_to(build):
    with pytest.raises(NotPublishedError):
        publish(build("a"), fresh(), "owner/none", create_pr=True)


def test_a_hub_has_the_signed_list_of_releases_on_a_branch(hub, build, tmp_path):
    from kernforge.artifact import directories  # noqa: PLC0415 - for this test
    from kernforge.loader.search import Search, find_kernel, signed_list  # noqa: PLC0415 - as above
    from kernforge.publish.releases import add_signature, write_releases  # noqa: PLC0415 - as above
    from kernforge.system.environment import Environment  # noqa: PLC0415 - as above
    from kernforge.trust import signature, signing  # noqa: PLC0415 - as above

    registry = open_registry("hf://")
    keys = []
    for _ in range(2):
        private, _public = signature.new_key(None)
        keys.append(signing.Key(pem=private, passphrase=None))
    for text in ("one", "three"):
        built = build(text)
        signing.sign(directories.variants(built), keys[0].sign)
        publish(built, registry, REPO)
    assert signed_list(registry, REPO) is None
    write_releases(registry, REPO, keys[0], days=3)
    add_signature(registry, REPO, keys[1], accepted=[keys[0].signer])
    policy = tmp_path / "trust.toml"
    signers = [
        f'[signer.s{n}]\npublic-key = "{signing.public_text(public_pem(key))}"\n'
        for n, key in enumerate(keys)
    ]
    policy.write_text(
        "".join(signers)
        + '[[rule]]\nadmit = "signed"\nsigners = ["s0", "s1"]\nreleases = "fresh"\nthreshold = 2\n'
    )
    environment = Environment({**os.environ, "KERNFORGE_TRUST": str(policy)})
    fresh = open_registry("hf://", environment)
    fresh.forget(REPO)
    found = find_kernel(Search(fresh, "cpu", environment), REPO, 1, None)
    assert found.admission.signers == ("s0", "s1")
    assert found.admission.release == "1.0.1"
    files_of_main = set(registry.listing(REPO, registry.ref(REPO, "main")))
    assert not any(name.startswith("releases.") for name in files_of_main)


def public_pem(key):
    from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415 - for one test

    private = form.load_pem_private_key(key.pem, None)
    return private.public_key().public_bytes(
        form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    )
