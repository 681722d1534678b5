# SPDX-License-Identifier: Apache-2.0
"""``kernforge test``: a project's tests on its built variants.

Each variant is tested by a pytest of its own, with ``KERNFORGE_KERNEL_DIR`` naming it: a process
holds one build of a kernel.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kernforge.artifact import directories
from kernforge.artifact.directories import BuiltVariant
from kernforge.errors import CheckError, KernforgeError, NoVariantError, UsageError
from kernforge.loader.host import probe
from kernforge.loader.resolve import resolve
from kernforge.loader.search import with_override
from kernforge.system import files, tables
from kernforge.system.environment import Environment
from kernforge.system.process import Command, Runner, run

PLUGIN = "kernforge.testing.plugin"
_RAN = (0, 1)  # pytest: all passed, some failed
_NOTHING = 5  # pytest: no test was collected
_UNREADABLE = "ERROR collecting "  # pytest: a file of tests cannot be imported
_SHOWN = 3
_SUMMARY = "=== short test summary info"
_CAUSES: dict[int, str] = {
    signal.SIGABRT: "probably the kernel wrote beyond a result or an argument, which the C library "
    "saw later in its heap, or an assertion or exception of C++ ended it",
    signal.SIGSEGV: "the kernel read or wrote memory that is not there, probably beyond the end of "
    "an argument or a result",
    signal.SIGBUS: "the kernel read or wrote memory that is not there, or /dev/shm is full",
    signal.SIGFPE: "the kernel divided an integer by zero",
    signal.SIGILL: "the kernel has an instruction that this processor lacks, or reached the end of "
    "a function that returns nothing",
    signal.SIGKILL: "another program killed it, as the system does when memory is short",
}
"""Likely causes of a crash, by signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """The result of testing one variant.

    Attributes:
        tests: outcome and reason by test.
    """

    variant: str
    tests: tuple[Mapping[str, str], ...]
    output: str
    wall_s: float

    @property
    def counts(self) -> dict[str, int]:
        """Number of tests by outcome; a test that fails as expected counts as skipped."""
        counts = Counter(test["outcome"] for test in self.tests)
        counts["skipped"] += counts.pop("xfailed", 0)
        return {name: counts[name] for name in ("passed", "failed", "error", "skipped")}

    @property
    def skip_reason(self) -> str:
        """The most frequent reason if every test was skipped, else ""."""
        reasons = Counter(test["reason"].removeprefix("Skipped: ") for test in self.tests)
        ran = any(test["outcome"] != "skipped" for test in self.tests)
        return "" if ran or not reasons else reasons.most_common(1)[0][0]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.counts["failed"] + self.counts["error"]


def fitting(names: Sequence[str]) -> tuple[str, ...]:
    """The best variants for this machine: for the CPU, and for its GPU if it has one."""
    import torch

    backends = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    best = (resolve(names, probe(backend)).best for backend in backends)
    return tuple(dict.fromkeys(decision.name for decision in best if decision is not None))


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The variants to test when the user names none, an error without one."""
    best = fitting(names)
    if not best:
        raise NoVariantError(
            f"none of the project's {tables.counted(len(names), 'variant')} runs on this machine: "
            + tables.first_names(names, _SHOWN),
            hint="add sources for the CPU to the project, or test on a machine that has the GPU"
            if not any("-cpu-" in name for name in names)
            else "name one with --variant, or test on a machine that has the GPU",
        )
    return best


def built_in(directory: Path, patterns: Sequence[str]) -> dict[str, Path]:
    """The intact variants in a directory, or the variant that it is.

    Args:
        patterns: names or patterns of the variants; all when empty.
    """
    variants = {path.absolute().name: path for path in directories.variants(directory)}
    names = [n for n in variants if not patterns or any(fnmatchcase(n, p) for p in patterns)]
    if not names:
        raise UsageError(
            f"{directory} has no variant {' or '.join(patterns)}",
            hint=f"there are {', '.join(variants)}",
        )
    for name in names:
        BuiltVariant.read(variants[name]).verified_files()
    return {name: variants[name] for name in names}


def run_variant(
    project: Path,
    variant: Path,
    arguments: Sequence[str],
    *,
    environment: Environment,
    repo_id: str | None = None,
    only: Sequence[str] = (),
    cache: Path | None = None,
    runner: Runner = run,
) -> Tested:
    """Run a project's tests on one variant.

    Args:
        project: its root; ``tests/`` is run if it is there.
        arguments: arguments of pytest, such as ``-k views``.
        repo_id: the project's repo id: ``get_kernel`` of it in a test loads the variant.
        only: files of tests, from the project's root; all when empty.
        cache: directory of pytest's cache, by which failed tests run first the next time; None
            for no cache.
    """
    tests = project / "tests"
    with files.staging(environment.home / "tests") as scratch:
        outcomes = scratch / "outcomes.json"
        argv = [sys.executable, "-m", "pytest", "-p", PLUGIN]
        argv += ["-o", f"cache_dir={cache}", "--ff"] if cache else ["-p", "no:cacheprovider"]
        argv += arguments
        argv += [str(project / path) for path in only] or [
            str(tests if tests.is_dir() else project)
        ]
        added = {
            "KERNFORGE_KERNEL_DIR": str(variant.absolute()),
            "KERNFORGE_TEST_COUNTS": str(outcomes.absolute()),
        }
        if repo_id:
            local = with_override(environment.local_kernels, repo_id, variant.absolute())
            added["LOCAL_KERNELS"] = local
        done = runner(
            Command(argv=tuple(argv), cwd=project, env=variables(environment), added=added)
        )
        if done.returncode not in _RAN or not outcomes.is_file():  # 1 is Python's own error too
            began = outcomes.with_suffix(".running")
            test = began.read_text() if began.is_file() else ""
            raise _not_run(project, done.returncode, done.stdout + done.stderr, test)
        rows = tuple(json.loads(outcomes.read_text()))
    return Tested(variant=variant.name, tests=rows, output=done.stdout, wall_s=done.wall_s)


def variables(environment: Environment) -> dict[str, str]:
    """The variables for pytest in the project's directory, with no relative ``PYTHONPATH``."""
    inherited = environment.variables
    paths = filter(None, inherited.get("PYTHONPATH", "").split(os.pathsep))
    return {**inherited, "PYTHONPATH": os.pathsep.join(str(Path(p).absolute()) for p in paths)}


def _not_run(project: Path, status: int, output: str, test: str) -> KernforgeError:
    """The error of a pytest that did not run all tests, with its reason.

    Args:
        test: the one that began last; empty if none did.
    """
    if test and status < 0:
        cause = _CAUSES.get(-status, "the kernel or the test ended the process")
        name = signal.strsignal(-status) or "a signal"
        return CheckError(
            f"{test} crashed, so that later tests did not run: signal {-status} ({name}): {cause}",
            hint="run its kind alone: `kernforge test --pytest=-k --pytest="
            f"{shlex.quote(test.rpartition('::')[2].partition('[')[0])}`",
        )
    if status == _NOTHING:
        return UsageError(
            f"no tests were selected in {project}",
            hint="write some below tests/, or choose less narrowly",
        )
    if _UNREADABLE in output:
        # Nothing before the first of these files, and after them, names a cause.
        errors = output[output.index(_UNREADABLE) :].partition("\n")[2].partition(_SUMMARY)[0]
        names = dict.fromkeys(re.findall(rf"{_UNREADABLE}(\S+)", output))
        no_torch = "No module named 'torch'" in errors
        return UsageError(
            f"{', '.join(names)} cannot be read, so nothing was tested:\n"
            f"{errors.rstrip(' =_')[-3000:]}",
            hint="pip install torch"
            if no_torch
            else "fix it, or leave it out with --pytest=--ignore=FILE",
        )
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return UsageError(
        f"pytest {ended} before all tests were run:\n{output[-3000:].strip()}",
        hint="a test or the kernel ended the process, or an argument is wrong; `--pytest=-xv` "
        "shows where",
    )
