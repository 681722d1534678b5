# SPDX-License-Identifier: Apache-2.0
"""The page for readers of tutorials: its commands are run in a folder with the tutorials' files."""

import shutil
from pathlib import Path

import pytest
from e2e.walkthrough import Walk, blocks

pytestmark = [pytest.mark.native, pytest.mark.torch]
pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/author/come-from-a-tutorial.md"
FILES = ROOT / "tests/tutorials"
STEPS = (
    *("nix develop", "nix build .#bundle", "build2cmake", "huggingface-cli upload", "time.time()"),
    *("huggingface-cli tag", "kernels lock", "kernels download", "kernels to-wheel", "load(...)"),
    *("setup.py build_ext", "pip install .", "compile_dev.py", 'get_kernel("me/img2gray")'),
)
SECTIONS = dict.fromkeys(b.section for b in blocks(PAGE) if b.mark == "run" and b.section)


def rows():
    """The cells of the table of steps."""
    table = PAGE.read_text().partition("## Each step and its command")[2]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_works_as_printed(section, tmp_path, kept_home, fresh_venv):
    top = tmp_path / "work"
    shutil.copytree(FILES / "img2gray", top / "img2gray")
    venv = fresh_venv()
    venv.install("pip")  # as every environment of Python's own venv module has it
    Walk(PAGE, top, kept_home, venv).follow(gpu=False, section=section)


def test_each_step_of_the_tutorials_is_in_the_table():
    for step in STEPS:
        assert any(step in row[0] for row in rows()), step
