# SPDX-License-Identifier: Apache-2.0
"""Follows a page of the documentation as a reader does: makes its files, runs its commands.

A comment above each block says what it is:

    <!-- run -->            commands after "$ ", with what they print; or a Python program
    <!-- run: exit 8 -->    the same, and the last command ends with that code and prints the error
    <!-- run: gpu -->       only where there is an NVIDIA GPU
    <!-- file: PATH -->     the text is that file
    <!-- change: PATH -->   a diff; what it takes away must be there once
    <!-- done before -->    whoever runs the tests has done it
    <!-- not run: WHY -->

"..." in what is printed stands for anything. A block without a comment is an error.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
_FENCE = re.compile(r"(?:^<!-- ([^>]+) -->\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NEEDS_A_MARK = {"console", "python", "diff", "toml"}


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Attributes:
        mark: the word of its comment.
        detail: what follows the word.
        language: of the fence.
        text: what is in it.
        line: where it begins.
        section: the heading of the second level that it is below.
    """

    mark: str
    detail: str
    language: str
    text: str
    line: int
    section: str


def blocks(page):
    """The blocks of a page, in order."""
    text, found = page.read_text(), []
    for match in _FENCE.finditer(text):
        mark, language, body = match.groups()
        line = text.count("\n", 0, match.start(2)) + 1
        assert mark or language not in _NEEDS_A_MARK, f"{page.name}:{line} has no mark"
        word, _, detail = (mark or "").partition(": ")
        above = re.findall(r"^## (.+)$", text[: match.start()], re.MULTILINE)
        found.append(Block(word, detail, language, body, line, above[-1] if above else ""))
    return found


def matches(shown, printed):
    """Whether what a page shows is what was printed; "..." is anything, runs of blanks are one."""
    parts = re.split(r"\s*\.\.\.\s*", " ".join(shown.split()))
    pattern = ".*".join(map(re.escape, parts))
    return bool(re.fullmatch(pattern, " ".join(printed.split())))


class Walk:
    """A reader with a folder and a shell.

    Args:
        page: what is read.
        top: the folder to begin in.
        home: the KERNFORGE_HOME.
        venv: the ``FreshVenv`` that the reader has activated, in which the page's ``pip`` installs;
            where there is none, the environment of the tests is what the page has installed.
    """

    def __init__(self, page, top, home, venv=None):
        self.page = page
        self.here = top
        self.top = top
        self._venv = venv
        tools = self._tools = top.parent / f"{top.name}-tools"
        tools.mkdir(exist_ok=True)
        if venv:
            self._write(pip=venv.pip)
            self._python = ["python"]
            env = venv.environ()
        else:
            # What the page installs must be installed already: pip fetches nothing and says so.
            python = [sys.executable]
            pip = ["env", "PIP_NO_INDEX=1", *python, "-m", "pip"]
            self._write(kernforge=[*python, "-m", "kernforge"], python=python, pip=pip)
            self._python = [str(tools / "python")]
            paths = [str(SRC), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.state = tools / "state"
        self.env = {
            **env,
            "KERNFORGE_HOME": str(home),
            "PATH": f"{tools}:{env['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        self.env.pop("KERNFORGE_REGISTRY", None)

    def _write(self, **programs):
        """Write programs that start others."""
        for name, argv in programs.items():
            (self._tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n')
            (self._tools / name).chmod(0o755)

    def fork(self):
        """From when torch is installed, fork what imports it."""
        if self._venv:
            self._write(**self._venv.forked())

    def follow(self, *, gpu, section=""):
        """Do what the page says: on a GPU, or all the rest; of one section, or of all."""
        for block in blocks(self.page):
            if section and block.section not in ("", section):
                continue
            if block.mark == "file" and not (gpu and (self.top / block.detail).exists()):
                path = self.here / block.detail
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.mark == "change" and not gpu:
                self._change(block)
            elif block.mark == "run" and (block.detail == "gpu") is gpu:
                if block.language == "python":
                    self._run([*self._python, "-c", block.text], block, "...", 0)
                else:
                    self._commands(block)

    def _change(self, block):
        path = self.here / block.detail
        lines = block.text.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        text = path.read_text()
        assert text.count(before) == 1, f"{self._place(block)}: {path} has it not just once"
        path.write_text(text.replace(before, after))

    def _commands(self, block):
        parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
        assert not parts[0].strip(), f"{self._place(block)}: begins without a command"
        kind, _, number = block.detail.partition(" ")
        for i, part in enumerate(parts[1:], 2):
            command, _, shown = part.partition("\n")
            code = int(number) if kind == "exit" and i == len(parts) else 0
            # The shell tells where it ends, so `cd` and `export` hold for what follows.
            script = f"{command}\ncode=$?\npwd > {shlex.quote(str(self.state))}\nexit $code"
            self._run(["bash", "-c", script], block, shown or "...", code)
            self.here = Path(self.state.read_text().rstrip("\n"))

    def _run(self, argv, block, shown, code):
        self.fork()
        program = shutil.which(argv[0], path=self.env["PATH"])
        done = subprocess.run(
            [program, *argv[1:]],
            cwd=self.here,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        everything = f"{self._place(block)}: {argv[-1]}\n{done.stdout}{done.stderr}"
        assert done.returncode == code, f"exit {done.returncode}, {everything}"
        printed = done.stderr if code else done.stdout
        assert matches(shown, printed), f"not what is shown:\n{shown}\n{everything}"

    def _place(self, block):
        return f"{self.page.name}:{block.line}"
