# SPDX-License-Identifier: Apache-2.0
"""Findings are remembered for an unchanged variant, and for nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernforge
from kernforge.check import api as check
from kernforge.check import cache
from kernforge.check.finding import Finding
from kernforge.store.local import Store


@pytest.fixture
def looks(monkeypatch):
    """Count how often the rules are really run; the list gives what they find."""
    calls = []

    def look(path, *, run, python):
        calls.append(path)
        return tuple(Finding(rule="r", severity=s, where="w", message="m", hint="h") for s in kinds)

    kinds = ["skipped"]
    monkeypatch.setattr(check, "check_variant", look)
    return calls, kinds


def ask(variant, tmp_path):
    return cache.check(variant, store=Store(tmp_path / "store"), run=None)


def test_an_unchanged_variant_is_looked_at_once(write_variant, tmp_path, looks):
    variant = write_variant(tmp_path / "build")
    first = ask(variant, tmp_path)
    assert ask(variant, tmp_path) == first
    assert len(looks[0]) == 1


def test_a_changed_byte_is_looked_at(write_variant, tmp_path, looks):
    variant = write_variant(tmp_path / "build")
    ask(variant, tmp_path)
    (variant / "__init__.py").write_text("changed")
    ask(variant, tmp_path)
    assert len(looks[0]) == 2


def test_errors_are_not_remembered(write_variant, tmp_path, looks):
    looks[1][:] = ["error"]
    variant = write_variant(tmp_path / "build")
    ask(variant, tmp_path)
    ask(variant, tmp_path)
    assert len(looks[0]) == 2


def test_another_installation_is_looked_at(write_variant, tmp_path, looks, monkeypatch):
    variant = write_variant(tmp_path / "build")
    ask(variant, tmp_path)
    monkeypatch.setattr(cache, "_installed", lambda: [1])
    ask(variant, tmp_path)
    assert len(looks[0]) == 2


def test_damage_in_the_store_is_looked_past(write_variant, tmp_path, looks):
    variant = write_variant(tmp_path / "build")
    ask(variant, tmp_path)
    (path,) = (tmp_path / "store").rglob("findings.json")
    path.write_text("[{")
    assert [f.severity for f in ask(variant, tmp_path)] == ["skipped"]
    assert len(looks[0]) == 2


CHECK = """
import sys
from pathlib import Path
from kernforge.check import api, cache
from kernforge.store.local import Store
checked = []
api.check_variant = lambda variant, **_: checked.append(variant) or ()
cache.check(Path(sys.argv[1]), store=Store(Path(sys.argv[2])), run=None)
print(len(checked))
"""


def test_an_edited_rule_or_table_is_not_answered_by_earlier_findings(write_variant, tmp_path):
    package = tmp_path / "copy" / "kernforge"
    shutil.copytree(
        Path(kernforge.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc")
    )
    variant = write_variant(tmp_path)

    def checks():
        argv = [sys.executable, "-c", CHECK, variant, tmp_path / "store"]
        env = {**os.environ, "PYTHONPATH": str(package.parent)}
        done = subprocess.run(argv, capture_output=True, text=True, env=env, check=True)
        return int(done.stdout)

    assert [checks(), checks()] == [1, 0]
    for path in ("check/package_rules.py", "data/glibc-2.28.txt"):
        with (package / path).open("a") as file:
            file.write("# edited\n")
        assert checks() == 1, path
    (package / "build" / "layout.py").write_text("")  # no rule depends on it
    assert checks() == 0
