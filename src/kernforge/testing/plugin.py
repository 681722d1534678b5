# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: options, markers, and which build is tested.

``KERNFORGE_KERNEL_DIR`` names a variant or a directory of variants; without it, the ``build/`` of
the project that the test lies in is taken. Where that variable is set, ``import <name>`` gives the
tested build too, as the projects of kernel-builder write it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernforge.system import garbage
from kernforge.testing import import_hook

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

KERNEL_DIR = "KERNFORGE_KERNEL_DIR"
"""What names the tested build."""
COUNTS = "KERNFORGE_TEST_COUNTS"
"""File to which ``kernforge test`` has the outcome of every test written."""
PARENT = "KERNFORGE_TEST_PARENT"
"""The process that ``kernforge test`` runs in; the tests end with it."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--sanitizer``."""
    parser.getgroup("kernforge").addoption(
        "--sanitizer",
        action="append",
        choices=_TOOLS,
        help="run the checks of values under this tool of compute-sanitizer; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and let ``import <name>`` find the tested build."""
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")
    config.addinivalue_line("markers", "kernels_ci: chosen by the hub's continuous integration")
    if directory := os.environ.get(KERNEL_DIR):
        import_hook.install(Path(directory))
    if parent := os.environ.pop(PARENT, ""):  # what the tests start has another parent
        _end_with(int(parent))
        garbage.work_seldom()
        config.pluginmanager.register(_Collected())


class _Collected:
    """Told when torch and the tests are imported: what tests make of tensors is not to stay long."""

    def pytest_collection_finish(self) -> None:
        garbage.work_as_usual()


def _end_with(parent: int) -> None:
    """Be killed when the parent dies: a worker that is killed leaves no tests that hold the GPU."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        pytest.exit(f"process {parent}, which wants the outcomes, has ended")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Any:
    """A device to test on; the GPU is skipped, visibly, where there is none."""
    import torch  # noqa: PLC0415 - torch is imported where it is used

    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    return request.param


@pytest.fixture
def kernel(request: pytest.FixtureRequest, device: str) -> ModuleType:
    """The tested build's package for a device; skipped, visibly, where none was built for it."""
    from kernforge.errors import NoVariantError  # noqa: PLC0415 - the loader, when it is needed
    from kernforge.loader.api import get_local_kernel  # noqa: PLC0415

    try:
        return get_local_kernel(_directory(request.path), backend=device.partition(":")[0])
    except NoVariantError as error:
        pytest.skip(f"no build for {device}: {error.message}")


def _directory(test: Path) -> Path:
    if named := os.environ.get(KERNEL_DIR):
        return Path(named)
    for folder in test.parents:
        if (folder / "build.toml").is_file():
            return folder / "build"
    pytest.fail(f"no project holds {test}: no build.toml above it, and {KERNEL_DIR} is not set")


_lost_in: list[str] = []
"""The test that left the GPU in an error that lasts."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, visibly, what cannot run any more after a fault that this process does not survive."""
    if _lost_in and item.get_closest_marker("gpu"):
        pytest.skip(f"the GPU was lost to this process in {_lost_in[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Have a fault of the GPU, which is told late, fail the test that it is from."""
    try:
        result = yield
    except BaseException:
        _note_loss(item)
        raise
    if text := _note_loss(item):
        raise AssertionError(f"the GPU was lost: {text}")
    return result


def _note_loss(item: pytest.Item) -> str:
    from kernforge.testing.gpu import lost  # noqa: PLC0415 - not while pytest starts

    if not _lost_in and (text := lost()):
        _lost_in.append(item.nodeid)
        return text
    return ""


_outcomes: dict[str, tuple[str, str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember each test's outcome; one whose setup or teardown breaks is an error.

    Pytest calls a test that fails as it is expected to skipped, though it ran.
    """
    outcome: str = report.outcome
    if hasattr(report, "wasxfail") and outcome == "skipped":
        outcome = "xfailed"
    if report.when != "call" and outcome == "failed":
        outcome = "error"
    if report.when == "call" or outcome != "passed":
        _outcomes[report.nodeid] = (outcome, _reason(report))


def _reason(report: pytest.TestReport) -> str:
    if why := getattr(report, "wasxfail", ""):
        return str(why)
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    return "" if crash is None else str(crash.message)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Write the outcomes where ``kernforge test`` wants them."""
    if place := os.environ.get(COUNTS):
        from kernforge.system.files import write_atomic  # noqa: PLC0415

        rows = [{"test": t, "outcome": o, "reason": r} for t, (o, r) in _outcomes.items()]
        write_atomic(Path(place), json.dumps(rows))
