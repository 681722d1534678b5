# SPDX-License-Identifier: Apache-2.0
import json

import pytest
from support.commands import call

import kernforge
from kernforge.loader import audit_log
from kernforge.publish.api import publish
from kernforge.system.environment import Environment

REPO = "owner/toy"
pytestmark = pytest.mark.usefixtures("machine")


def entries():
    return audit_log.read(Environment.read())


def test_each_kernel_that_is_imported_has_one_entry(registry, build):
    publish(build(name="base"), registry, "owner/base")
    commit = publish(build(depends={"owner/base": 1}), registry, REPO).commit
    assert entries() == []
    for _ in range(3):
        kernforge.get_kernel(REPO, version=1)
    assert [entry["kernel"] for entry in entries()] == ["owner/base", REPO]
    entry = entries()[1]
    assert (entry["commit"], entry["registry"]) == (commit, registry.url)
    assert entry["variant"] == "torch-cpu"
    assert entry["signers"] == []
    assert entry["verified"]
    path = registry.fetch(REPO, commit, "torch-cpu") / "metadata.json"
    assert entry["document"] == audit_log.files.sha256_file(path)


def test_a_directory_is_logged_too(build):
    kernforge.get_local_kernel(build())
    assert [entry["kernel"] for entry in entries()] == ["toy"]
    assert entries()[0]["commit"] is None


def test_what_was_refused_is_not_logged(registry, build):
    commit = publish(build(), registry, REPO).commit
    path = registry.fetch(REPO, commit, "torch-cpu")
    (path / "more.py").write_text("")
    with pytest.raises(kernforge.errors.IntegrityError):
        kernforge.get_kernel(REPO, version=1)
    assert entries() == []


def test_a_log_that_cannot_be_written_or_read_whole_stops_nothing(build, capsys):
    file = audit_log.log_file(Environment.read())
    file.mkdir(parents=True)  # in its place
    assert kernforge.get_local_kernel(build()).ANSWER == 42
    file.rmdir()
    file.write_text('{"kernel": "a/b", "time": "2026-01-02T03:04:05"}\n[]\n{"kernel": "cut')
    assert [entry["kernel"] for entry in entries()] == ["a/b"]
    assert call("audit-log", "a/", "--json") == 0
    assert [entry["kernel"] for entry in json.loads(capsys.readouterr().out)] == ["a/b"]
    assert call("audit-log", "--last", "0") == 0
    assert "nothing was loaded" in capsys.readouterr().out


def test_a_large_log_is_put_aside(build, monkeypatch):
    monkeypatch.setattr(audit_log, "_MOST_BYTES", 10)
    kernforge.get_local_kernel(build(name="one"))
    kernforge.get_local_kernel(build(name="two"))
    file = audit_log.log_file(Environment.read())
    assert file.with_name("loads.1.jsonl").is_file()
    assert [entry["kernel"] for entry in entries()] == ["one", "two"]
    assert file.stat().st_mode & 0o077 == 0
