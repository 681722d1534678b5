# SPDX-License-Identifier: Apache-2.0
"""Generated pages are up to date, links work, prose is wrapped, and the site builds."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kernforge import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), *ROOT.glob("kernels/*/*.md")]
GENERATED = ("reference/", "results/", "decisions/README.md")
WIDTH = 100


def run(*argv):
    env = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env, check=False)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse's layout differs by Python")
def test_generated_pages_are_up_to_date():
    done = run("scripts/generate_docs.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files_of_the_repository(page):
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_site_builds_and_all_its_links_work(tmp_path):
    pytest.importorskip("material", reason="the site needs kernforge[docs]")
    done = run("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site"))
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "site" / "index.html").read_text()
    assert "how-to/user/switch-from-kernels/" in home
    assert not re.search(r'(?:src|href)="https?://(?!kernforge\.example)[^"]*\.(?:js|css)', home)


def prose(text):
    """The lines of a page outside of code, tables, headings and comments."""
    text = re.sub(r"^---\n.*?^---\n", "", text, count=1, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "<!--"))]


WRAPPED = [
    page
    for page in PAGES
    if not page.relative_to(ROOT).as_posix().startswith(tuple(f"docs/{name}" for name in GENERATED))
]


@pytest.mark.parametrize("page", WRAPPED, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_wraps(page):
    long = [line for line in prose(page.read_text()) if len(line) > WIDTH and " " in line.strip()]
    assert not long


def test_pages_that_errors_name_exist():
    sources = (path.read_text() for path in (ROOT / "src/kernforge").rglob("*.py"))
    named = {
        page for text in sources for page in re.findall(r"\bpage\(['\"]([^'\"]+)['\"]\)", text)
    }
    assert len(named) > 2
    assert [page for page in named if not (DOCS / f"{page}.md").is_file()] == []
    assert errors.page("tutorial") == f"{errors.DOCUMENTATION}tutorial/"


def test_the_address_of_the_documentation_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    site = re.search(r"^site_url: (\S+)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert {project["urls"]["Documentation"], site[1]} == {errors.DOCUMENTATION}


def test_readme_is_short_and_has_one_table_of_results():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    table = text.partition("<!-- results:start -->")[2].partition("<!-- results:end -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert 2 < len(rows) <= 2 + 8


def test_decisions_are_numbered_without_gaps():
    numbers = [int(path.name[:4]) for path in sorted((DOCS / "decisions").glob("[0-9]*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))
