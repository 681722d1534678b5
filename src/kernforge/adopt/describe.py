# SPDX-License-Identifier: Apache-2.0
"""Program that writes the extensions of a setup.py or a script as JSON.

``python -m kernforge.adopt.describe PROGRAM FILE`` in the program's directory, with the stub of
torch on the path, writes FILE. A setup.py is run up to its ``setup()`` call. A script is run with
mocks of torch; what it gives ``load`` and ``load_inline`` is recorded.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import json
import re
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import setuptools

import kernforge
from kernforge.extension import api, inline
from kernforge.extension.plan import Extension
from kernforge.setuptools import extension
from kernforge.system import files

_MOCKS = (
    *("torch", "torch.nn", "torch.nn.functional", "torch.autograd", "torch.utils"),
    *("torch.utils.cpp_extension", "torch.utils.benchmark", "torch.utils.data"),
)
_SECONDS = 60  # for a script, which may train on mocks


def describe_setup(path: Path) -> dict[str, object]:
    """Name, license and extensions of a setup.py, as JSON values."""
    from distutils import core  # noqa: PLC0415 - setuptools' own, which its import provides

    # Else setuptools installs what setup_requires names first.
    setuptools.setup = core.setup
    project = core.run_setup(str(path), ["build_ext"], stop_after="config")
    about = project.metadata
    requests = (extension.extension_request(each, "", Path()) for each in project.ext_modules or [])
    return {
        "name": project.get_name(),
        "license": about.license or getattr(about, "license_expression", "") or "",
        "extensions": [dataclasses.asdict(each) for each in requests],
    }


def describe_script(path: Path) -> dict[str, object]:
    """Extensions that a script loads, run with mocks of torch.

    A statement that fails is passed over. If no extension was loaded, the script's functions
    without parameters are called too.
    """
    texts: dict[str, str] = {}
    extensions: list[dict[str, object]] = []
    errors: list[tuple[int, str]] = []

    def line_in(frames: traceback.StackSummary) -> int:
        return next((f.lineno or 0 for f in reversed(frames) if f.filename == str(path)), 0)

    def record(_session: object, request: Extension, **_options: object) -> MagicMock:
        given, name = dict(request.texts), re.sub(r"\W", "_", request.name)
        units = {unit: f"{name}{Path(unit).suffix}" for unit in inline.UNITS if unit in given}
        texts.update((file, inline.joined(given, unit)) for unit, file in units.items())
        request = dataclasses.replace(request, sources=tuple(units.values()) or request.sources)
        line = line_in(traceback.extract_stack())
        extensions.append({**dataclasses.asdict(request), "line": line})
        return MagicMock()

    def attempt(run: Callable[[], object]) -> None:
        try:
            run()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a script may raise anything
            line = line_in(traceback.extract_tb(error.__traceback__))
            errors.append((line, f"{type(error).__name__}: {error}"))

    torch = MagicMock()
    torch.nn.Module = torch.autograd.Function = object
    jit = torch.utils.cpp_extension
    jit.include_paths.return_value = jit.library_paths.return_value = []
    jit.load = kernforge.load
    jit.load_inline = kernforge.load_inline = functools.partial(
        kernforge.load_inline, with_pytorch_error_handling=False
    )
    sys.modules |= {m: functools.reduce(getattr, m.split(".")[1:], torch) for m in _MOCKS}
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(_SECONDS)
    with contextlib.suppress(KeyboardInterrupt), patch.object(api, "load_request", record):
        for statement in ast.parse(path.read_text(encoding="utf-8-sig")).body:
            code = compile(ast.Module([statement], []), str(path), "exec")
            attempt(functools.partial(exec, code, names))
        for value in [] if extensions else [*names.values()]:
            if inspect.isfunction(value) and not value.__code__.co_argcount:
                attempt(value)
    # A script that has loaded its module goes on with mocks, and may well fail.
    description = {
        "extensions": extensions,
        "texts": texts,
        "remarks": [] if extensions else errors,
    }
    return {"name": "", "license": "", **description}


def main(program: str, file: str) -> int:
    """Write the description of a program of this directory, or print its error."""
    path = Path(program)
    sys.path.insert(0, str(Path.cwd()))  # late, as it may have files of any name
    try:
        is_setup = path.name == "setup.py"
        described = describe_setup(path) if is_setup else describe_script(path.absolute())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a setup.py may raise anything
        # setuptools runs the text of a setup.py.
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "<string>"]
        line = error.lineno if isinstance(error, SyntaxError) else frames and frames[-1].lineno
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        where = f"{path.name}:{line}: " if line else ""
        sys.stderr.write(f"{where}{type(error).__name__}: {text}\n")
        return 1
    files.write_atomic(Path(file), json.dumps(described, default=str))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
