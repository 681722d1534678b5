# SPDX-License-Identifier: Apache-2.0
"""The commands of applications in the configuration of a new user: no registry is named."""

import json

import pytest
from support.commands import call

from kernforge.publish.api import publish
from kernforge.registry.api import open_registry
from kernforge.registry.directory import DirectoryRegistry

PROJECT = """
[project]
name = "app"
version = "1.0"
[build-system]
requires = ["setuptools", "kernforge"]
build-backend = "setuptools.build_meta"
[tool.kernels.dependencies]
"me/outer" = ">=1.0,<2"
"""


@pytest.fixture
def new_user(hub, tmp_path, monkeypatch):
    """The home of a user who names no registry, and a hub where the user may publish."""
    monkeypatch.delenv("KERNFORGE_HOME", raising=False)
    monkeypatch.delenv("KERNFORGE_REGISTRY", raising=False)
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.chdir(tmp_path)
    hub.publishers |= {"me", "them"}
    return tmp_path


def test_kernels_of_both_registries_are_locked_and_downloaded(new_user, write_variant, capsys):
    write_variant(new_user / "inner", unique="0000a01")
    publish(new_user / "inner", open_registry("hf://"), "them/inner", "1.0.0", card="# inner")
    write_variant(new_user / "outer", unique="0000a02", depends={"them/inner": 1})
    own = DirectoryRegistry(new_user / "data/kernforge/registry")
    publish(new_user / "outer", own, "me/outer", "1.0.0", card="# outer")
    app = new_user / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(PROJECT)
    assert call("lock", app) == 0
    assert call("get", app, "--variant", "*", "--to", new_user / "copy") == 0
    assert call("get", "me/outer", "--version", "1", "--variant", "*") == 0
    mine = new_user / "mine.tar"
    to_tar = ("get", "me/outer", "--version", "1", "--variant", "*", "--to", mine)
    assert (call(*to_tar), call(*to_tar)) == (0, 0)
    mine.write_text("mine")
    assert (call(*to_tar), mine.read_text()) == (2, "mine")
    capsys.readouterr()
    assert call("info", "--versions", "me/outer", "--registry", new_user / "copy") == 0
    assert call("info", "--versions", "them/inner", "--registry", new_user / "copy") == 0
    told = capsys.readouterr().out
    assert told.count("1.0.0") == 2, told
    assert "1 variant\n" in told


def test_publish_without_a_registry_names_the_users_own(new_user, write_variant, capsys):
    (new_user / "op.cpp").touch()
    (new_user / "build.toml").write_text(
        '[general]\nname = "my-op"\nversion = 1\nedition = 5\nlicense = "Apache-2.0"\n'
        'backends = ["cpu"]\n[general.hub]\nrepo-id = "me/my-op"\n[torch]\nstable-abi = "2.10"\n'
        '[kernel.cpu]\nbackend = "cpu"\ndepends = []\nsrc = ["op.cpp"]\n'
    )
    write_variant(new_user / "build", name="my-op", unique="0000a03")
    assert call("publish", new_user, "--version", "1.0.0", "--no-with-source", "--json") == 0
    told = capsys.readouterr()
    place = new_user / "data/kernforge/registry"
    assert f"your own registry is {place}" in told.err
    assert json.loads(told.out)["url"].startswith(place.as_uri())
    assert not (new_user / "cache/kernforge/registry").exists()


def test_search_finds_kernels_here_and_at_the_hub(new_user, hub, write_variant, capsys):
    write_variant(new_user / "inner", unique="0000a04")
    hub_registry = open_registry("hf://")
    publish(new_user / "inner", hub_registry, "them/relu", "1.0.0", card="# relu")
    own = DirectoryRegistry(new_user / "data/kernforge/registry")
    publish(new_user / "inner", own, "me/my-relu", "1.2.0", card="# mine")
    publish(new_user / "inner", own, "me/other", "1.0.0", card="# other")
    assert call("search", "--local", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(k["repo_id"], k["version"], k["variants"]) for k in listed] == [
        ("me/my-relu", "1.2.0", 1),
        ("me/other", "1.0.0", 1),
    ]
    assert call("search", "relu", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(k["repo_id"], k["registry"]) for k in found] == [
        ("me/my-relu", own.url),
        ("them/relu", hub_registry.url),
    ]
    # Downloaded kernels are listed too, without a request.
    assert call("get", "them/relu", "--version", "1", "--variant", "*") == 0
    hub.counted()
    capsys.readouterr()
    assert call("search", "--local", "RELU") == 0
    told = capsys.readouterr().out
    assert "me/my-relu" in told
    assert "them/relu" in told
    assert "me/other" not in told
    assert not hub.counted()


def test_an_offline_search_finds_local_kernels(new_user, write_variant, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_variant(new_user / "inner", unique="0000a05")
    own = DirectoryRegistry(new_user / "data/kernforge/registry")
    publish(new_user / "inner", own, "me/my-relu", "1.2.0", card="# mine")
    assert call("search", "relu") == 0
    assert "me/my-relu" in capsys.readouterr().out
    assert call("search", "relu", "--registry", "hf://") == 0
    assert call("search", "nothing-like-it") == 0
    assert "no kernel with 'nothing-like-it'" in capsys.readouterr().out
    assert call("search", "--local", "--registry", new_user / "none") == 0
    assert "is on this machine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("get", "nonsense"), 2, "owner/name"),
        (("info", "nonsense"), 2, "owner/name"),
        (("get", "me/my-op"), 2, "--version 1"),
        (("get", "."), 2, "hint: lock the project's kernels: kernforge lock PROJECT\n"),
        (("get", "me/x", "--version", "1", "--platform", "gpu-box"), 2, "is not a platform"),
        (("info", "--versions", "me/x", "--registry", "none"), 8, "that directory does not exist"),
        (("lock", ".", "--cuda", "13.2"), 2, "--cuda and --torch are for a kernel project"),
        (("cache", "--trim", "10"), 2, "'10' has no unit: write 10GB"),
    ],
)
def test_a_wrong_request_is_an_error_that_says_what_to_do(new_user, argv, code, message, capsys):
    assert call(*argv) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("claim", "version"), [((), "0.18.2"), (("--as-kernels=0.17.0",), "0.17.0")]
)
def test_run_writes_a_wheel_named_kernels(tmp_path, capsys, claim, version):
    assert call("run", "--write-wheel", str(tmp_path), *claim, "--json") == 0
    path = tmp_path / f"kernels-{version}-py3-none-any.whl"
    assert json.loads(capsys.readouterr().out) == {"path": str(path), "version": version}
    assert path.is_file()
