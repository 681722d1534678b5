# SPDX-License-Identifier: Apache-2.0
"""The second half of ``community.py``: load what was built and run the kernels' own tests.

Needs torch, pytest and the ``kernels`` client, and of kernforge only the loader half.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.errors import RequestError
from kernforge.loader.host import probe
from kernforge.loader.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from community_build import Built

ROOT = Path(__file__).parents[1]
LOADERS = ("kernforge", "kernels")
LOAD = "import {loader} as k; print(k.get_kernel({repo!r}, version={version}, backend={backend!r}))"
TIMED_OUT = 124
NO_CUDA = "Torch not compiled with CUDA enabled"
# The suite's own switch: jax and flax, if installed, are not tested.
SWITCHES = {"EINOPS_TEST_BACKENDS": "numpy,torch"}
# Tests that import the kernel by the name of the project from which it was taken.
ALSO_NAMED = {"gpt_oss_triton_kernels": "triton_kernels"}
MARKERS = "[pytest]\nmarkers =\n    kernels_ci: chosen by the project's own CI\n"


@dataclass(kw_only=True)
class Tested:
    """The result of loading and testing one variant."""

    kernel: str
    variant: str
    host: str = ""
    loads: dict[str, bool] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    why: str = ""
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> str:
        """Tests that passed, failed and were skipped."""
        ran = self.passed or self.failed or self.skipped
        return f"{self.passed}/{self.failed}/{self.skipped}" if ran else "none"


def test(record: Built, everything: Sequence[Built], root: Path, limit_s: int) -> Tested:
    """Load a variant with both loaders and run the kernel's own tests, in fresh processes.

    Args:
        everything: all that was built; a test may ask for another kernel.
        root: the directory that holds ``kernels``.
        limit_s: seconds that each process may take.
    """
    result = Tested(kernel=record.kernel, variant=record.variant, host=_host(record.backend))
    home = root / "kernels" / record.kernel
    try:
        decision = resolve([record.variant], probe(record.backend)).decisions[0]
    except RequestError as error:
        result.why = f"not run here: {error}"
        return result
    if not decision.accepted:
        result.why = f"not run here: {decision.reason}"
        return result
    env = _environment(record, everything, root)
    asked = {"repo": record.repo_id, "version": record.version, "backend": record.backend}
    for loader in LOADERS:
        done = _python(["-c", LOAD.format(loader=loader, **asked)], home, env, limit_s)
        result.loads[loader] = done.returncode == 0
        if done.returncode and not result.why:
            result.why = f"{loader}: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
    if (home / "tests").is_dir():
        _run_tests(result, home, env, limit_s)
    else:
        result.why = result.why or "has no tests of its own"
    return result


def _run_tests(result: Tested, home: Path, env: dict[str, str], limit_s: int) -> None:
    (home / "pytest.ini").write_text(MARKERS)
    report = home / f"report-{result.variant}.xml"
    report.unlink(missing_ok=True)
    argv = ["-m", "pytest", "-q", "-c", "pytest.ini", f"--junitxml={report}", "tests"]
    argv += ["--continue-on-collection-errors", "-p", "no:cacheprovider"]
    done = _python(argv, home, env, limit_s)
    (home / f"tests-{result.variant}.log").write_text(done.stdout + done.stderr)
    if report.is_file():
        _count(result, report)
    if done.returncode == TIMED_OUT:
        result.why = f"stopped after {limit_s} s; {result.why}"
    elif not report.is_file():
        result.failed, result.why = 1, result.why or f"pytest ended with {done.returncode}"


def _host(backend: str) -> str:
    import torch  # noqa: PLC0415 - seconds, and only a test wants it

    gpu = backend != "cpu" and torch.cuda.is_available()
    return f"torch {torch.__version__} on {torch.cuda.get_device_name() if gpu else 'CPU'}"


def _environment(record: Built, everything: Sequence[Built], root: Path) -> dict[str, str]:
    """Variables by which ``import <python name>`` and ``get_kernel(<repo id>)`` give the builds."""
    build = root / "kernels" / record.kernel / "build"
    shim = root / "shim" / record.kernel / record.variant
    shutil.rmtree(shim, ignore_errors=True)
    shim.mkdir(parents=True)
    for name in {record.python_name, ALSO_NAMED.get(record.python_name, record.python_name)}:
        (shim / name).symlink_to(build / record.variant)
    local = {r.repo_id: root / "kernels" / r.kernel / "build" for r in everything if r.built}
    local[record.repo_id] = build
    paths = [str(shim), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **SWITCHES,
        "PYTHONPATH": ":".join(filter(None, paths)),
        "LOCAL_KERNELS": ":".join(f"{repo}={path}" for repo, path in local.items()),
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # a variant holds what its digest covers and no more
    }


def _python(
    argv: list[str], cwd: Path, env: dict[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    # Interrupted and not killed, pytest still reports what it did.
    command = ["timeout", "-s", "INT", "-k", "20", str(limit_s), sys.executable, *argv]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def _count(result: Tested, report: Path) -> None:
    suite = ET.parse(report).getroot()[0]  # noqa: S314 - pytest wrote it just now
    count = {n: int(suite.get(n, "0")) for n in ("tests", "failures", "errors", "skipped")}
    result.failed = count["failures"] + count["errors"]
    result.skipped = count["skipped"]
    result.passed = count["tests"] - result.failed - result.skipped
    for kind in ("failure", "error", "skipped"):
        for one in suite.iter(kind):
            lines = f"{one.get('message') or ''}\n{one.text or ''}".strip().splitlines()
            reason = f"{kind}: {lines[0] if lines else '?'}"[:200]
            result.reasons[reason] = result.reasons.get(reason, 0) + 1
    wants_cuda = sum(n for reason, n in result.reasons.items() if NO_CUDA in reason)
    result.failed, result.skipped = result.failed - wants_cuda, result.skipped + wants_cuda
    result.why = result.why or next(iter(result.reasons), "")
