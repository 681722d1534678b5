# SPDX-License-Identifier: Apache-2.0
"""Draw README's picture of a terminal: commands with their output.

python scripts/terminal_picture.py docs/terminal.svg
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

STEPS = (
    "kernforge new my-kernel",
    "kernforge build my-kernel",
    "kernforge check my-kernel/build",
    "kernforge publish my-kernel --registry registry --repo-id me/my-kernel",
    "cat use.py",
    "python use.py",
)
USE = """import kernforge, torch

my_kernel = kernforge.get_kernel("me/my-kernel", version=1, registry="registry")
print(my_kernel.my_kernel(torch.tensor([-1.0, 0.0, 2.0])))
"""
WIDTH = 100


def main(picture: Path) -> None:
    """Run the steps in an empty directory, and write the picture."""
    programs = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": str(WIDTH)}
    with tempfile.TemporaryDirectory() as home, Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere)
        Path(home, "use.py").write_text(USE)
        for step in STEPS:
            done = subprocess.run(
                ["/bin/bash", "-c", step],
                cwd=home,
                env=env,
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            console.print(Text.assemble(("$ ", "green"), (step, "bold")))
            console.print(Text(done.stdout.replace(home, "~").rstrip()))
    console.save_svg(str(picture), title="kernforge")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
