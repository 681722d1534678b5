# SPDX-License-Identifier: Apache-2.0
"""A real kernel from source to a loaded op: build, check, publish, load, a photo turned grey.

Run it with ``make demo``. It builds for the CPU and for CUDA; the CUDA half is built and checked
on any machine and runs where there is a GPU.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
KERNEL = ROOT / "kernels" / "img2gray"
PHOTO = KERNEL / "assets" / "grace_hopper.jpg"
OUT = ROOT / ".demo"
REGISTRY = OUT / "registry"
REPO_ID = "kernforge/img2gray"


def step(*arguments: str | Path) -> None:
    """Run one kernforge command as a user would type it."""
    command = ["kernforge", *map(str, arguments)]
    print(f"\n$ {shlex.join(command)}", flush=True)
    program = Path(sys.executable).with_name("kernforge")
    done = subprocess.run([program, *command[1:]], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def grey_photo() -> None:
    """Load the published kernel and turn the photo grey with it."""
    import numpy as np  # noqa: PLC0415 - after the build, which needs neither
    import torch  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    import kernforge  # noqa: PLC0415

    img2gray = kernforge.get_kernel(REPO_ID, version=1, registry=REGISTRY)
    photo = torch.from_numpy(np.array(Image.open(PHOTO).convert("RGB")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    grey = img2gray.img2gray(photo.to(device)).cpu()
    rgb = photo.to(torch.int64)
    exact = (21 * rgb[..., 0] + 72 * rgb[..., 1] + 7 * rgb[..., 2] + 50) // 100
    wrong = int((grey != exact).sum())
    Image.fromarray(grey.numpy()).save(OUT / "grey.png")
    print(
        f"\n{PHOTO.name} {tuple(photo.shape)} -> {OUT / 'grey.png'} on {device} by "
        f"{img2gray.__name__}"
    )
    print(f"{wrong} of {grey.numel()} pixels differ from the exact formula")
    sys.exit(1 if wrong else 0)


def main() -> None:
    """Run the demo."""
    start = time.monotonic()
    OUT.mkdir(exist_ok=True)
    step("build", "--list", KERNEL)
    step("build", KERNEL)
    step("check", KERNEL / "build")
    step("publish", KERNEL, "--registry", REGISTRY, "--repo-id", REPO_ID)
    try:
        grey_photo()
    finally:
        print(f"{time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
