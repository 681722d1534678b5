# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest
from support.registries import REPO, commit_of, publish_file

from kernforge.errors import (
    AbsentError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    UsageError,
)
from kernforge.registry.api import (
    find,
    open_default,
    open_registry,
)
from kernforge.registry.directory import Chain, DirectoryRegistry
from kernforge.registry.hub import endpoint
from kernforge.registry.names import majors, request, versions
from kernforge.system.environment import Environment


def test_versions_and_revisions_name_commits(registry):
    tags = ["v1.0.0", "v1.2.0", "v1.10.0", "v2.0.0"]
    commits = {tag: publish_file(registry, tag, tag) for tag in tags}
    for version, tag in [
        (1, "v1.10.0"),
        ("2", "v2.0.0"),
        ("~=1.2", "v1.10.0"),
        ("~=1.2.0", "v1.2.0"),
        (">=1.1,<1.10", "v1.2.0"),
        (">=1", "v2.0.0"),
        ("1.0.0", "v1.0.0"),
        ("==1.2", "v1.2.0"),
        ("1.2", "v1.2.0"),
        ("v1.2", "v1.2.0"),
        ("v1", "v1.10.0"),
    ]:
        assert commit_of(registry, REPO, version) == commits[tag], version
    assert commit_of(registry, REPO, 3) is None
    assert commit_of(registry, REPO, "~=2.1") is None
    for revision in ["v1.2.0", commits["v1.2.0"], commits["v1.2.0"][:7]]:
        assert commit_of(registry, REPO, revision=revision) == commits["v1.2.0"]
    for absent in ["v9", "f" * 40, commits["v1.2.0"][:6]]:
        assert commit_of(registry, REPO, revision=absent) is None
    assert registry.variants(REPO, commits["v1.2.0"]) == ("torch-cpu",)
    assert registry.commits(REPO) == tuple(sorted(commits.values()))


def test_new_tag_is_visible_at_once(registry):
    publish_file(registry, "v1.0.0", "one")
    assert commit_of(registry, REPO, "~=1.0") == registry.ref(REPO, "v1.0.0")
    publish_file(registry, "v1.1.0", "two")
    assert commit_of(registry, REPO, "~=1.0") == registry.ref(REPO, "v1.1.0")


def test_ambiguous_commit_prefix_is_refused(registry):
    for digit in "ab":
        registry.snapshot(REPO, "1234567" + digit * 33).mkdir(parents=True)
    with pytest.raises(RegistryError, match="Ambiguous commit prefix"):
        commit_of(registry, REPO, revision="1234567")
    assert commit_of(registry, REPO, revision="1234567a") == "1234567" + "a" * 33


def test_malformed_version_is_refused(registry):
    with pytest.raises(UsageError, match="'newest' is not a version"):
        commit_of(registry, REPO, "newest")


def test_registry_opens_by_path_and_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    spaced = tmp_path / "a b"
    assert open_registry("a b").root == spaced
    assert open_registry("~/a b").root == spaced
    not_utf8 = Path(os.fsdecode(bytes(tmp_path / "x") + b"\xff"))
    for root in (spaced, not_utf8):
        assert open_registry(root.as_uri()).root == root
    for url in ["ftp://example.org/x", "file://host/x", "https://"]:
        with pytest.raises(RegistryError, match="is not a registry that kernforge can open"):
            open_registry(url)


def test_absent_kernel_names_the_offline_hub(usual_hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        AbsentError, match=r"registry file://.*, then hf\+http.* has no kernel"
    ) as e:
        find(open_default(Environment.read()), request(REPO, 1))
    assert "is offline" in e.value.hint
    assert not usual_hub.requests


def test_an_unreachable_hub_is_not_blamed_alone(usual_hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(NetworkError, match=r" is not in file://.*, and http://127") as e:
        find(open_default(Environment.read()), request(REPO, 1))
    assert "name its registry" in e.value.hint


def test_default_is_the_own_directory_then_the_hub(usual_hub, tmp_path, monkeypatch):
    commit = usual_hub.add(REPO, "v1", {"a.py": b""})
    assert commit_of(open_default(Environment.read()), REPO, 1) == commit
    own = DirectoryRegistry(tmp_path / "home/registry")
    with own.writing(REPO):
        new = own.add_snapshot(REPO, {})
        own.set_ref(REPO, "v2", new)
    default = open_default(Environment.read())
    assert isinstance(default, Chain)
    assert default.member(REPO).url == own.url
    assert commit_of(default, REPO, 1) is None, "one registry stands for a kernel"
    with pytest.raises(NotPublishedError, match="has no version 1 in registry file") as refused:
        find(default, request(REPO, 1))
    assert "it hides hf+http" in refused.value.hint
    assert "--registry hf://" in refused.value.hint
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(own.root))
    assert open_default(Environment.read()) is open_registry(str(own.root))


def test_only_complete_references_are_versions():
    names = ["v1", "v01", "v2.0", "v1.2.3", "v1.2.3rc1", "v1.10.0", "main", "v3x"]
    assert versions(names) == {(1, 2, 3): "v1.2.3", (1, 10, 0): "v1.10.0"}
    assert majors([*names, "v0", "v12"]) == (0, 1, 12)


# -- the hub that the environment names ------------------------------------------------------------

USUAL = {"HF_ENDPOINT": "https://hub.example.com/"}


@pytest.mark.parametrize(
    ("location", "variables", "expected"),
    [
        ("hf://", {}, ("https://huggingface.co", "~/.cache/huggingface/hub", True)),
        ("hf://", USUAL, ("https://hub.example.com", "~/.cache/huggingface/hub", True)),
        ("hf+https://hub.example.com", USUAL, ("https://hub.example.com", None, True)),
        ("hf://", {"HF_HOME": "/h"}, ("https://huggingface.co", "/h/hub", True)),
        ("hf://", {"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}, ("https://huggingface.co", "/c", True)),
        ("hf://", {"KERNELS_CACHE": "/k", "HF_HUB_CACHE": "/c"}, (None, "/k", True)),
        ("hf://", {"XDG_CACHE_HOME": "/x"}, (None, "/x/huggingface/hub", True)),
        ("hf+http://10.0.0.1:80", {}, ("http://10.0.0.1:80", "/kf/hubs/10.0.0.1-80", False)),
    ],
)
def test_environment_configures_the_hub(location, variables, expected):
    url, cache, own_token = expected
    given = {"KERNFORGE_HOME": "/kf", "HF_TOKEN": "t", **variables}
    hub = endpoint(location, Environment(given))
    assert url in {None, hub.url}
    assert cache is None or hub.cache == Path(cache).expanduser()
    assert (bool(hub.token), hub.token_file is not None) == (own_token, own_token)
    assert not hub.offline
    silent = endpoint(location, Environment({**given, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}))
    assert (silent.token, silent.token_file) == (None, None)


def test_invalid_addresses_are_refused():
    for location in ("hf://host", "hf+https://", "hf+ftp://host"):
        with pytest.raises(RegistryError, match="not a registry that kernforge can open"):
            open_registry(location)
    for location in ("hf+https://user:secret@host", "hf+https://ho st", "https://u:secret@host/x"):
        with pytest.raises(RegistryError, match="not the address of a registry"):
            open_registry(location)


def test_offline_variable_reads_as_in_the_hubs_client():
    for value, offline in [("1", True), ("true", True), ("0", False), ("", False)]:
        assert endpoint("hf://", Environment({"HF_HUB_OFFLINE": value})).offline is offline
