# SPDX-License-Identifier: Apache-2.0
"""Links work, and the site builds."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import call

from kernforge.manifest.model import KERNELS, TABLES, Document, fields

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), *ROOT.glob("kernels/*/*.md")]


def run(*argv):
    env = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env, check=False)


def test_links_lead_to_files():
    for page in PAGES:
        text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page} links to {target}"


def test_the_site_builds_without_broken_links(tmp_path):
    pytest.importorskip("material", reason="the site needs kernforge[docs]")
    done = run("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site"))
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "site" / "index.html").read_text()
    assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css)', home)
    api = (tmp_path / "site" / "reference" / "api" / "kernforge" / "index.html").read_text()
    assert "get_kernel" in api


def test_pages_in_errors_exist():
    sources = (path.read_text() for path in (ROOT / "src/kernforge").rglob("*.py"))
    named = {
        page for text in sources for page in re.findall(r"\bpage\(['\"]([^'\"]+)['\"]\)", text)
    }
    assert len(named) > 2
    assert [page for page in named if not (DOCS / f"{page}.md").is_file()] == []


def test_every_key_of_build_toml_is_in_its_reference():
    text = (DOCS / "reference/manifest.md").read_text()
    kinds = (Document, *TABLES.values(), *KERNELS.values())
    keys = {key: field for kind in kinds for key, field in fields(kind).items()}
    assert len(keys) > 30
    assert {key for key in keys if f"`{key}`" not in text and f"[{key}" not in text} == set()
    assert all(field.description for field in keys.values())


@pytest.mark.parametrize(
    "argv",
    [
        ("new", "my-op"),
        ("build", "--list", "my-op"),
        ("cache",),
        ("export", "my-op", "--only", "nix"),
        ("skills", "--for", "agents"),
        ("run", "--write-wheel", "dist"),
    ],
)
def test_json_documents_have_the_keys_of_their_page(argv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if "my-op" in argv[1:] and argv[0] != "new":
        assert call("new", "my-op") == 0
        capsys.readouterr()
    call(*argv, "--json")
    document = json.loads(capsys.readouterr().out)
    keys = {*(document[0] if isinstance(document, list) else document)}
    text = (DOCS / "reference/json.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith(f"| `{argv[0]}")]
    assert {key for key in keys if f"`{key}`" not in "".join(rows)} <= {"error", "message", "hint"}


def test_readme_is_a_front_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
