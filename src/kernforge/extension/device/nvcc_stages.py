# SPDX-License-Identifier: Apache-2.0
"""Run nvcc's stages for the host and for the device at the same time.

``nvcc --dryrun`` prints the commands of a compilation; nvcc runs them one after another. For one
architecture there are two chains that need nothing of each other: preprocessing and cudafe++ for
the host; preprocessing, cicc, ptxas and fatbinary for the device. The host compiler needs both.
They share the module's name for internal symbols, which cudafe++ writes and cicc reads. cicc can
make it too (``nvcc -cubin`` has it do so); if the two names differ, cicc runs again.

Where the list of commands looks otherwise, nvcc runs it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernforge.system.process import Command, Completed, run

_LINE = re.compile(r"#\$ (.*)")
_SETTING = re.compile(r"(\w+)=(.*)")
_KEPT = ("--keep", "--keep-dir=../tmp")
_STAGES = ("preprocess", "cudafe++", "preprocess", "cicc", "ptxas", "fatbinary", "compile")
_MODULE = re.compile(r'--module_id_file_name "([^"]+)"')
# With this flag, which a project's units have, nvcc reads <functional> before a source: 0.3 s.
_LAMBDA_FLAG = re.compile(r"-?-(?:expt-)?extended-lambda")
# A macro may stand for the words after a lambda's brackets.
_NEEDS_FLAG = re.compile(
    r"\]\s*(?:__device__|__host__)|(?<!\])\]\s*[A-Z_]\w*|EXTENDED_LAMBDA|__nv_is_extended|__cpp_lib_|_GLIBCXX"
)
_MISSES_STD = re.compile(r"""["']std["'] has no|not a member of ['"]std|["']std::""")
# To read more than this takes longer than the flag does.
_READ_BYTES = 1_000_000
_DEVICE = "-D__CUDA_ARCH__="


def run_stages(command: Command) -> Completed:
    """Run a program; if it is nvcc for one object and one architecture, its stages side by side.

    The words of a sandbox may stand before nvcc's.
    """
    if not any(map(_is_nvcc, command.argv)) or not {"-c", "-cubin"} & set(command.argv):
        return run(command)
    argv = tuple(word for word in command.argv if not _LAMBDA_FLAG.fullmatch(word))
    if argv == command.argv or _needs_flag(command.cwd or Path()):
        return _run_staged(command)
    done = _run_staged(replace(command, argv=argv))
    if done.returncode and _MISSES_STD.search(done.stdout + done.stderr):
        return _run_staged(command)
    return done


def _needs_flag(directory: Path) -> bool:
    """Whether files may have a device lambda, or depend on the headers that the flag reads."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in paths) > _READ_BYTES or any(
        _NEEDS_FLAG.search(path.read_text(errors="replace")) for path in paths
    )


def _is_nvcc(word: str) -> bool:
    return word.endswith("/nvcc")


def _run_staged(command: Command) -> Completed:
    if "-c" not in command.argv:
        return run(command)
    keep_flags = () if _KEPT[0] in command.argv else _KEPT
    listed = run(replace(command, argv=(*command.argv, *keep_flags, "--dryrun")))
    lines = (listed.stdout + listed.stderr).splitlines()
    script = stage_script(lines) if listed.returncode == 0 else None
    if script is None:
        return run(command)
    sandbox = command.argv[: next(at for at, word in enumerate(command.argv) if _is_nvcc(word))]
    done = run(replace(command, argv=(*sandbox, "/bin/sh", "-c", script)))
    return replace(done, wall_s=done.wall_s + listed.wall_s, cpu_s=done.cpu_s + listed.cpu_s)


def stage_script(lines: Sequence[str]) -> str | None:
    """A shell script that runs the two chains of ``nvcc --dryrun`` at the same time.

    Its messages are those of nvcc: of the host's stages, and of the device's if the former succeed.

    Returns:
        None if the stages are not those that are expected.
    """
    printed = [match[1] for line in lines if (match := _LINE.fullmatch(line))]
    settings = [match for line in printed if (match := _SETTING.fullmatch(line))]
    steps = [line for line in printed if not _SETTING.fullmatch(line)]
    if tuple(_stage(step) for step in steps) != _STAGES:
        return None
    before, cudafe, preprocess, cicc, *rest, compile_ = steps
    named = _MODULE.search(cicc)
    if _DEVICE in before or _DEVICE not in preprocess or not named or named[0] not in cudafe:
        return None
    second = named[1] + ".device"
    naming = cicc.replace(named[0], f'--gen_module_id_file --module_id_file_name "{second}"')
    after = " && ".join(rest)
    exports = (f"export {match[1]}={shlex.quote(match[2])}" for match in settings)
    return "\n".join(
        (
            *exports,
            f"( {preprocess} && {naming} && {after} ) > ../tmp/device.log 2>&1 & device=$!",
            f"{before} && {cudafe} || {{ code=$?; wait; exit $code; }}",
            "wait $device; code=$?",
            f"if [ $code = 0 ] && ! cmp -s {shlex.quote(named[1])} {shlex.quote(second)}; then",
            f"  ( {cicc} && {after} ) > ../tmp/device.log 2>&1; code=$?",
            "fi",
            "cat ../tmp/device.log >&2; [ $code = 0 ] || exit $code",
            f"exec {compile_}",
        )
    )


def _stage(step: str) -> str:
    words = shlex.split(step)
    program = words[0].rpartition("/")[2]
    if program in {"cudafe++", "cicc", "ptxas", "fatbinary"}:
        return program
    return "preprocess" if "-E" in words else "compile" if "-c" in words else "other"
