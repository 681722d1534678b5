# SPDX-License-Identifier: Apache-2.0
"""Generated pages are what the code says, and links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("kernels/*/*.md")]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse's layout differs by Python")
def test_generated_pages_are_up_to_date():
    argv = [sys.executable, ROOT / "scripts" / "generate_docs.py", "--check"]
    env = {"COLUMNS": "100", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
