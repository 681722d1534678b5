# SPDX-License-Identifier: Apache-2.0
"""Program that runs a setup.py up to its ``setup()`` call and writes its arguments as JSON.

``python -m kernforge.adopt.describe FILE TOOLKIT`` in the project's directory, with the stand-in
for torch on the path. FILE is written; TOOLKIT is the directory that ``CUDA_HOME`` names. Nothing
is built.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
from pathlib import Path

import setuptools

from kernforge.setuptools import extension
from kernforge.system import files


def describe(setup: str, toolkit: Path) -> dict[str, object]:
    """The name, license and extensions of a setup.py, as values that JSON has."""
    from distutils import core  # noqa: PLC0415 - setuptools' own, which it provides

    extension.NAMED_DIRECTORIES.update(torch=toolkit / "torch", toolkit=toolkit)
    # Else setuptools installs what setup_requires names first.
    setuptools.setup = core.setup
    found = core.run_setup(setup, ["build_ext"], stop_after="config")
    listed = found.ext_modules or []
    return {
        "name": found.get_name(),
        "license": found.metadata.license
        or getattr(found.metadata, "license_expression", "")
        or "",
        "extensions": [
            dataclasses.asdict(extension.request_of(each, "", Path())) for each in listed
        ],
    }


def main(file: str, toolkit: str) -> int:
    """Write the description of the setup.py of this directory, or print how it failed."""
    import json  # noqa: PLC0415 - a setup.py may have files of such names beside it

    try:
        found = describe("setup.py", Path(toolkit))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a setup.py may raise anything
        # setuptools runs the text of a setup.py.
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "<string>"]
        line = error.lineno if isinstance(error, SyntaxError) else frames and frames[-1].lineno
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        where = f"setup.py:{line}: " if line else ""
        sys.stderr.write(f"{where}{type(error).__name__}: {text}\n")
        return 1
    files.write_atomic(Path(file), json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
