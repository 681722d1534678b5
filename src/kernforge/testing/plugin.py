# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: options, markers, and the tested build.

``KERNFORGE_KERNEL_DIR`` names a variant or a directory of variants; the default is ``build/`` of
the project that contains the test. If the variable is set, ``import <name>`` gives the tested build
too, as in projects of kernel-builder.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernforge.system.environment import Environment
from kernforge.testing import import_hook

COUNTS = "KERNFORGE_TEST_COUNTS"
"""Variable with the file for the outcome of every test, for ``kernforge test``."""
_ENVIRONMENT: pytest.StashKey[Environment] = pytest.StashKey()
__tracebackhide__ = True
_DEVICES = ("cpu", "cuda")
_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--sanitizer``."""
    parser.getgroup("kernforge").addoption(
        "--sanitizer",
        action="append",
        choices=_TOOLS,
        help="run the checks of values under this tool of compute-sanitizer; may be repeated",
    )


def environment(config: pytest.Config) -> Environment:
    """The variables of this process at the start of pytest."""
    if _ENVIRONMENT not in config.stash:
        config.stash[_ENVIRONMENT] = Environment.read()
    return config.stash[_ENVIRONMENT]


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and let ``import <name>`` find the tested build."""
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")
    config.addinivalue_line("markers", "kernels_ci: chosen by the hub's continuous integration")
    if directory := environment(config).kernforge_kernel_dir:
        import_hook.install(Path(directory))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that do not apply to the tested build, so that skipped tests have a meaning.

    A build for one backend has no tests on another device, and a check that the author or the
    command line did not ask for is no test.
    """
    directory = environment(config).kernforge_kernel_dir
    built = import_hook.documents_in(Path(directory)) if directory else []
    backends = frozenset(each.backend for each in built)
    items[:] = [item for item in items if _applies(item, backends)]


def _applies(item: pytest.Item, backends: frozenset[str]) -> bool:
    """Whether a test applies to a build for some backends; they are empty where none is named."""
    asks = getattr(getattr(item, "cls", None), "applies", None)
    if asks is not None and not asks(item, backends):
        return False
    device = getattr(getattr(item, "callspec", None), "params", {}).get("device")
    tested = "kernel" in getattr(item, "fixturenames", ())
    return not (tested and backends and device in _DEVICES) or device in backends


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Any:
    """A device to test on; tests of the GPU are skipped, with a reason, if there is none."""
    from kernforge.testing.gpu import skip_without_gpu  # noqa: PLC0415 - not while pytest starts

    if request.param == "cuda":
        skip_without_gpu()
    return request.param


@pytest.fixture
def kernel(request: pytest.FixtureRequest, device: str) -> ModuleType:
    """The tested build's package for a device; skip, with a reason, without such a build."""
    from kernforge.errors import NoVariantError  # noqa: PLC0415 - the loader, when it is needed
    from kernforge.loader.api import get_local_kernel  # noqa: PLC0415

    try:
        return get_local_kernel(_directory(request), backend=device.partition(":")[0])
    except NoVariantError as error:
        pytest.skip(f"no build for {device}: {error.message}")


def _directory(request: pytest.FixtureRequest) -> Path:
    test, variable = request.path, Environment.kernforge_kernel_dir.name
    if directory := environment(request.config).kernforge_kernel_dir:
        return Path(directory)
    for folder in test.parents:
        if (folder / "build.toml").is_file():
            return folder / "build"
    pytest.fail(f"{test} is not in a project: no build.toml above it, and {variable} is not set")


_lost_in: list[str] = []
"""The test after which the GPU reports an error for every call."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of the GPU, with a reason, after an error that lasts as long as the process."""
    if _lost_in and item.get_closest_marker("gpu"):
        pytest.skip(f"the GPU cannot be used by this process since {_lost_in[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Report an error of the GPU, which comes late, in the test that caused it."""
    try:
        result = yield
    except BaseException:
        _note_loss(item)
        raise
    if text := _note_loss(item):
        raise AssertionError(f"the GPU cannot be used any more: {text}")
    return result


def _note_loss(item: pytest.Item) -> str:
    from kernforge.testing.gpu import lasting_error  # noqa: PLC0415 - not while pytest starts

    if not _lost_in and (text := lasting_error()):
        _lost_in.append(item.nodeid)
        return text
    return ""


_outcomes: dict[str, tuple[str, str]] = {}
_failures: dict[str, str] = {}
"""The first test with a failure, by the failure's message."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Write the name of the test that begins: it is the last one if the process crashes."""
    if file := environment(item.config).variables.get(COUNTS):
        Path(file).with_suffix(".running").write_text(item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record each test's outcome, and leave a traceback out that another test has shown.

    A failed setup or teardown is an error.

    Pytest reports a test that fails as expected as skipped, although it ran.
    """
    outcome: str = report.outcome
    if hasattr(report, "wasxfail") and outcome == "skipped":
        outcome = "xfailed"
    if report.when != "call" and outcome == "failed":
        outcome = "error"
    if report.when == "call" or outcome != "passed":
        _outcomes[report.nodeid] = (outcome, reason := _reason(report))
        if outcome in {"failed", "error"} and reason:
            first = _failures.setdefault(reason, report.nodeid)
            if first != report.nodeid:
                report.longrepr = f"the same as {first}"


def _reason(report: pytest.TestReport) -> str:
    if reason := getattr(report, "wasxfail", ""):
        return str(reason)
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    return "" if crash is None else str(crash.message)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes to the file for ``kernforge test``."""
    if file := environment(session.config).variables.get(COUNTS):
        from kernforge.system.files import write_atomic  # noqa: PLC0415

        rows = [{"test": t, "outcome": o, "reason": r} for t, (o, r) in _outcomes.items()]
        write_atomic(Path(file), json.dumps(rows))
