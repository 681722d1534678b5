# SPDX-License-Identifier: Apache-2.0
"""The tutorials' kernel projects in the forms that the tutorials have, and their builds for a GPU.

A machine with a GPU may have no package index, so that its builds are made before, on any machine:

    PYTHONPATH=src:tests python -m support.tutorials --torch 2.13 --arch 9.0
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "tutorials"
BUILT = FOLDER / "build"
"""A directory for each form with its variants."""
_BINDING, _PACKAGE = "torch-ext/torch_binding.cpp", "torch-ext/img2gray/__init__.py"
FIXED = (
    (_BINDING, "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops)", "TORCH_LIBRARY(img2gray, ops)"),
    (_PACKAGE, "from ._ops import ops", "from . import _ops"),
    (_PACKAGE, "    ops.img2gray(", "    torch.ops.img2gray.img2gray("),
)
FORMS = {
    "only-a-name": (),
    "not-universal": (("build.toml", 'name = "img2gray"', 'name = "img2gray"\nuniversal = false'),),
    "fixed-namespace": FIXED,
}
"""Edits of img2gray: path, old text, new text."""
USE = """
import sys
import torch
{load}
device = "{device}"
value = torch.arange(256, dtype=torch.uint8, device=device)
differ = 0
for red in range(0, 256, 64):
    image = torch.cartesian_prod(value[red : red + 64], value, value).view(2048, 2048, 3)
    r, g, b = image.float().unbind(-1)
    weights = [torch.tensor(float(text), device=device) for text in "{weights}".split()]
    {gray}
    differ += int((kernel.{function}(image) != gray.to(torch.uint8)).sum())
print(differ, kernel.__name__)
"""
"""A program that prints for how many colours a kernel's grey value differs from the formula's."""
GRAY = {
    # Every operation rounded to float32, as it is written.
    "cpu": "gray = weights[0] * r + weights[1] * g + weights[2] * b",
    # nvcc rounds green's product and joins the other two to the sums: one operation, one rounding
    # each. In float64 such a product and sum are exact.
    "cuda": """gray = (weights[1] * g).double()
    gray = (weights[0].double() * r.double() + gray).float()
    gray = (weights[2].double() * b.double() + gray.double()).float()""",
}
LOCAL = "import kernforge; kernel = kernforge.get_local_kernel(sys.argv[1])"
ADOPTED = ("my_extension", "cuda_ops_project", "custom_ops")
"""Projects with a setup.py, which are built as the kernel projects that adopt makes of them."""


def copy(root, *folders, edits=()):
    """Copy folders into a project, the later over the earlier, and edit its files."""
    for folder in folders:
        shutil.copytree(FOLDER / folder, root, dirs_exist_ok=True)
    for path, old, new in edits:
        text = (root / path).read_text()
        assert old in text, f"{path} has no {old!r}"
        (root / path).write_text(text.replace(old, new))
    return root


def _build(root, name, torch, arch):
    pattern = f"torch{torch.replace('.', '')}-*-cu130-*"
    argv = [sys.executable, "-m", "kernforge", "build", str(root), "--variant", pattern]
    argv += ["--build-dir", str(BUILT / name), *(["--arch", arch] if arch else [])]
    subprocess.run(argv, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--arch", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for form, form_edits in FORMS.items():
            project = copy(Path(directory, form), "img2gray", edits=form_edits)
            _build(project, form, given.torch, given.arch)
        _build(copy(Path(directory, "ops"), "image-ops"), "image-ops", given.torch, given.arch)
        for folder in ADOPTED:
            argv = ["adopt", str(FOLDER / folder), "--out", str(Path(directory, folder))]
            subprocess.run([sys.executable, "-m", "kernforge", *argv], check=True)
            _build(Path(directory, folder), f"adopted-{folder}", given.torch, given.arch)
