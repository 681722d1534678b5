# SPDX-License-Identifier: Apache-2.0
"""The commands and programs of README and pages of the documentation, run as they stand.

The tutorial is for two machines, and ``KERNFORGE_TUTORIAL_DIR`` is the folder that its reader
copies from one to the other: where that is empty or not there, all before the last chapter is
done in it; where it is not, it was carried here, and the last chapter follows:

    KERNFORGE_TUTORIAL_DIR=zero pytest tests/e2e/test_tutorial.py -k up_to_the_gpu
    KERNFORGE_TUTORIAL_DIR=zero python scripts/test_gpu.py tests/e2e/test_tutorial.py
"""

import os
import shutil
from pathlib import Path

import pytest
from e2e.walkthrough import Walk, blocks

pytestmark = [pytest.mark.native, pytest.mark.torch]
torch = pytest.importorskip("torch")

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "tutorial.md", DOCS / "how-to/release/from-a-kernel-to-a-model.md")
README = DOCS.parent / "README.md"


COME_FROM = DOCS / "how-to/author/come-from-a-tutorial.md"
SECTIONS = dict.fromkeys(b.section for b in blocks(COME_FROM) if b.mark == "run" and b.section)


@pytest.fixture(scope="module")
def walked(tmp_path_factory, kept_home, fresh_venv):
    """Readers of the pages who got as far as the GPU, here or on another machine."""
    named = os.environ.get("KERNFORGE_TUTORIAL_DIR")
    top = Path(named).resolve() if named else tmp_path_factory.mktemp("zero") / "work"
    top.mkdir(parents=True, exist_ok=True)
    carried = any(top.iterdir())
    # A machine with a GPU has the torch for it, which is no wheel to make again.
    venv = None if carried else fresh_venv()
    readers = [Walk(page, top, kept_home, venv) for page in PAGES]
    if not carried:
        for reader in readers:
            reader.follow(gpu=False)
    return readers


@pytest.mark.road
def test_every_command_of_the_readme_works(tmp_path, kept_home, fresh_venv):
    top = tmp_path / "work"
    top.mkdir()
    venv = fresh_venv()
    venv.install("kernforge[author]", "torch", "numpy")
    Walk(README, top, kept_home, venv).follow(gpu=False)


def test_the_tutorial_works_up_to_the_gpu(walked):
    for reader in walked:
        assert reader.here == reader.top
    assert (walked[0].top / "app/kernels.lock").is_file()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_the_tutorial_works_on_the_gpu(walked):
    for reader in walked:
        assert sum(block.detail == "gpu" for block in blocks(reader.page)) >= 2
        reader.follow(gpu=True)


@pytest.mark.parametrize("section", SECTIONS)
def test_readers_of_other_tutorials_bring_their_files(section, tmp_path, kept_home, fresh_venv):
    top = tmp_path / "work"
    shutil.copytree(DOCS.parent / "tests/tutorials/img2gray", top / "img2gray")
    venv = fresh_venv()
    venv.install("pip")  # as every environment of Python's own venv module has it
    Walk(COME_FROM, top, kept_home, venv).follow(gpu=False, section=section)
