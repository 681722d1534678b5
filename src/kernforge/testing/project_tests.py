# SPDX-License-Identifier: Apache-2.0
"""``kernforge test``: a project's tests on its built variants, here or on a worker with the GPU.

Each variant is tested by a pytest of its own, with ``KERNFORGE_KERNEL_DIR`` naming it: a process
holds one build of a kernel. A Dask worker is sent the project's files and the variant; what it
sends back is what a run here would give.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.artifact import directories
from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.errors import (
    BuildError,
    KernforgeError,
    NetworkError,
    NoVariantError,
    StorageError,
    UsageError,
)
from kernforge.loader.host import probe
from kernforge.loader.resolve import resolve
from kernforge.system import files
from kernforge.system.paths import home
from kernforge.system.process import Command, run
from kernforge.toolchain import lockfile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernforge.system.process import Completed, Runner

PLUGIN = "kernforge.testing.plugin"
_RAN = (0, 1)  # pytest: all passed, some failed
_REFUSED = 4  # pytest: its arguments are wrong
_NOTHING = 5  # pytest: no test was collected
_UNREADABLE = "ERROR collecting "  # pytest: a file of tests cannot be imported
_SUMMARY = "=== short test summary info"
_CONNECT_S = 10
_PATIENCE_S = 60
_LOOK_S = 1
_LEFT_OUT = frozenset({"build", "__pycache__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What came of testing one variant.

    Attributes:
        variant: its name.
        where: "here", or the worker's address.
        tests: outcome and reason by test.
        output: what pytest printed.
        wall_s: seconds.
    """

    variant: str
    where: str
    tests: tuple[Mapping[str, str], ...]
    output: str
    wall_s: float

    @property
    def counts(self) -> dict[str, int]:
        """How many passed, failed, were skipped (or failed as expected), and broke in setup."""
        found = Counter(one["outcome"] for one in self.tests)
        found["skipped"] += found.pop("xfailed", 0)
        return {name: found[name] for name in ("passed", "failed", "error", "skipped")}

    @property
    def idle(self) -> str:
        """Why all tests were skipped, in the words of most of them; empty where one ran."""
        reasons = Counter(one["reason"].removeprefix("Skipped: ") for one in self.tests)
        ran = any(one["outcome"] != "skipped" for one in self.tests)
        return "" if ran or not reasons else reasons.most_common(1)[0][0]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.counts["failed"] + self.counts["error"]


def fitting(names: Sequence[str]) -> tuple[str, ...]:
    """The variants to test on this machine: the best for the CPU, and for its GPU if it has one."""
    import torch  # noqa: PLC0415 - torch is imported where it is used

    backends = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    best = (resolve(names, probe(backend)).best for backend in backends)
    return tuple(dict.fromkeys(one.name for one in best if one is not None))


def chosen(names: Sequence[str], fit: Sequence[str]) -> tuple[str, ...]:
    """The variants to test when the user names none.

    Raises:
        NoVariantError: the project has none for the machine.
    """
    if not fit:
        raise NoVariantError(
            f"none of the project's variants fits this machine: {', '.join(names)}",
            hint="name one with --variant, or test on a worker that has the GPU: --scheduler",
        )
    return tuple(fit)


def built_in(directory: Path, patterns: Sequence[str]) -> dict[str, Path]:
    """The variants that lie in a directory, or the one that it is.

    Args:
        directory: a project, a directory of variants, or a variant.
        patterns: names or patterns of those that are meant; all when empty.

    Raises:
        UsageError: there is none.
        IntegrityError: one is not what was built.
    """
    found = {path.absolute().name: path for path in directories.variants(directory)}
    meant = [n for n in found if not patterns or any(fnmatchcase(n, p) for p in patterns)]
    if not meant:
        raise UsageError(
            f"{directory} has no variant {' or '.join(patterns)}",
            hint=f"there are {', '.join(found)}",
        )
    for name in meant:
        path = found[name] / FILE
        promised = Metadata.from_json(path.read_bytes(), source=str(path)).digest
        if promised is not None:
            verify_tree(found[name], promised)
    return {name: found[name] for name in meant}


def build(project: Path, variants: Iterable[str], options: Sequence[str]) -> dict[str, Path]:
    """Build variants as ``kernforge build`` does; what is up to date costs half a second.

    Raises:
        KernforgeError: it did not; of the build's own kind and in its own words.
    """
    patterns = [word for name in variants for word in ("--variant", name)]
    argv = (sys.executable, "-m", "kernforge", "build", str(project), *patterns, *options)
    done = run(Command(argv=(*argv, "--json")))
    if done.returncode:
        raise _not_built(done)
    return {name: Path(path) for name, path in json.loads(done.stdout)["variants"].items()}


def _not_built(done: Completed) -> KernforgeError:
    """The build's error out of the document that it printed, if it came so far."""
    told: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        told = json.loads(done.stdout)
    lines = [f"{each['action']}:\n{each['output']}" for each in told.get("failures", ())]
    lines += [
        f"{each['where']}: {each['message']} [{each['rule']}]\n    {each['hint']}"
        for each in told.get("findings", ())
        if each["severity"] == "error"
    ]
    lines.append(told.get("message") or done.stderr.strip())
    kinds = {kind.exit_code: kind for kind in KernforgeError.__subclasses__()}
    hint = "mend it with: kernforge build" if told.get("failures") else told.get("hint", "")
    if done.returncode == StorageError.exit_code and lockfile.FILE_NAME not in lines[-1]:
        hint = (
            "`kernforge build --out DIR` builds elsewhere, `kernforge test --kernel DIR` tests it"
        )
    return kinds.get(done.returncode, BuildError)(
        "\n".join(["the project cannot be built, so it is not tested:", *lines]), hint=hint
    )


def run_variant(
    project: Path,
    variant: Path,
    arguments: Sequence[str],
    *,
    where: str = "here",
    only: Sequence[str] = (),
    cache: Path | None = None,
    runner: Runner = run,
) -> Tested:
    """Run a project's tests on one variant.

    Args:
        project: its root; ``tests/`` is run if it is there.
        variant: the built variant's directory.
        arguments: for pytest, as ``-k views``.
        where: what the result says.
        only: files of tests, from the project's root; all when empty.
        cache: directory in which pytest keeps what failed, to run it first the next time; None
            keeps nothing.
        runner: starts pytest.

    Raises:
        UsageError: there are no tests, or pytest refuses its arguments; with what it printed.
    """
    tests = project / "tests"
    with files.staging(home() / "tests") as scratch:
        place = scratch / "outcomes.json"
        argv = [sys.executable, "-m", "pytest", "-p", PLUGIN]
        argv += ["-o", f"cache_dir={cache}", "--ff"] if cache else ["-p", "no:cacheprovider"]
        argv += arguments
        argv += [str(project / one) for one in only] or [str(tests if tests.is_dir() else project)]
        env = {
            **environment(),
            "KERNFORGE_KERNEL_DIR": str(variant.absolute()),
            "KERNFORGE_TEST_COUNTS": str(place.absolute()),
            "KERNFORGE_TEST_PARENT": str(os.getpid()),
        }
        done = runner(Command(argv=tuple(argv), cwd=project, env=env))
        if done.returncode not in _RAN:
            raise _not_run(project, done.returncode, done.stdout + done.stderr)
        rows = tuple(json.loads(place.read_text()))
    return Tested(
        variant=variant.name, where=where, tests=rows, output=done.stdout, wall_s=done.wall_s
    )


def environment() -> dict[str, str]:
    """The variables of a program that runs in the project's directory."""
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    # Relative ones are meant from here.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).absolute()) for p in paths)}


def _not_run(project: Path, status: int, output: str) -> UsageError:
    if status == _NOTHING:
        return UsageError(
            f"{project} has no tests that were chosen",
            hint="write some below tests/, or choose less narrowly",
        )
    if status == _REFUSED:
        words = [line for line in output.splitlines() if "error: " in line]
        return UsageError(
            f"pytest refuses its arguments: {words[-1].partition('error: ')[2] if words else output}",
            hint="`pytest --help` lists them; each is passed on by --pytest=ARGUMENT",
        )
    if "No module named pytest" in output:
        return UsageError("pytest is not installed", hint="pip install 'kernforge[testing]'")
    if _UNREADABLE in output:
        # From the first of those files on; what pytest says before and after it says nothing more.
        said = output[output.index(_UNREADABLE) :].partition("\n")[2].partition(_SUMMARY)[0]
        names = dict.fromkeys(re.findall(rf"{_UNREADABLE}(\S+)", output))
        hint = "mend it, or leave it out with --pytest=--ignore=FILE"
        if "No module named 'torch'" in said:
            hint = "pip install torch"
        return UsageError(
            f"{', '.join(names)} cannot be read, so nothing was tested:\n{said.rstrip(' =_')[-3000:]}",
            hint=hint,
        )
    ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return UsageError(
        f"pytest {ended} before all tests were run:\n{output[-3000:].strip()}",
        hint="a test or the kernel ended the process, or an argument is wrong; `--pytest=-xv` shows where",
    )


# -- on a worker -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A project and a variant by their files' contents, paths relative to each."""

    project: Mapping[str, bytes]
    name: str
    variant: Mapping[str, bytes]
    arguments: tuple[str, ...]


def parcel(project: Path, variant: Path, arguments: Sequence[str]) -> Parcel:
    """Read what a worker needs: the project without its builds and hidden files."""
    return Parcel(
        project=_contents(project),
        name=variant.name,
        variant=_contents(variant),
        arguments=tuple(arguments),
    )


def _contents(root: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(part in _LEFT_OUT or part.startswith(".") for part in parts)
        if path.is_file() and not hidden:
            found["/".join(parts)] = path.read_bytes()
    return found


def unpack_and_test(sent: Parcel) -> Tested:
    """Test on the machine where this is called what another one sent."""
    from distributed import get_worker  # noqa: PLC0415 - only a cluster has it

    with files.staging(home() / "tests") as scratch:
        for folder, contents in (("project", sent.project), (sent.name, sent.variant)):
            for path, data in contents.items():
                files.write_new(scratch / folder / path, data)
        where = str(get_worker().address)
        return run_variant(scratch / "project", scratch / sent.name, sent.arguments, where=where)


class Workers:
    """The workers of a Dask scheduler that offer what tests need.

    Args:
        address: the scheduler's.
        resources: what a worker must offer, as ``{"GPU": 1}``.
        patience_s: how long the last such worker may be gone; a nanny starts one anew.

    Raises:
        NetworkError: no scheduler answers, or no worker offers that.
    """

    def __init__(
        self, address: str, resources: Mapping[str, float], *, patience_s: float = _PATIENCE_S
    ) -> None:
        from distributed import Client  # noqa: PLC0415 - only a cluster needs it

        self._address, self._resources = address, dict(resources)
        self._patience_s = patience_s
        try:
            self._client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise NetworkError(
                f"no Dask scheduler answers at {address}: {error}",
                hint="start one with `dask scheduler`, and give its address as tcp://HOST:8786",
            ) from error
        if not self._any():
            self.close()
            raise self._nobody("no worker of {} offers {}", "{} has no workers")

    def _any(self) -> bool:
        """Whether a worker offers what is asked."""
        try:
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        except OSError:  # the scheduler is gone; it may come back
            return False
        asked = self._resources.items()
        return any(all(w["resources"].get(n, 0) >= amount for n, amount in asked) for w in workers)

    def _nobody(self, particular: str, plain: str) -> NetworkError:
        wanted = " ".join(f"{name}={amount:g}" for name, amount in self._resources.items())
        return NetworkError(
            particular.format(self._address, wanted) if wanted else plain.format(self._address),
            hint=f"start one: `dask worker {self._address}"
            + (f" --resources '{wanted}'`" if wanted else "`"),
        )

    def call(self, function: Any, *arguments: Any) -> Any:
        """Run a function on a worker and give back what it returns or raises.

        When the worker dies, Dask gives the work to another one.

        Raises:
            NetworkError: each worker that had it died, or none is left; or the scheduler is gone.
        """
        from distributed import CancelledError, KilledWorker  # noqa: PLC0415

        options = {"resources": self._resources} if self._resources else {}
        future = self._client.submit(function, *arguments, pure=False, **options)
        done, seen = threading.Event(), time.monotonic()
        future.add_done_callback(lambda _: done.set())
        while not done.wait(_LOOK_S):
            if self._any():
                seen = time.monotonic()
            elif time.monotonic() - seen > self._patience_s:
                future.cancel()
                gone = "its worker is gone, and no other of {} offers {}"
                raise self._nobody(gone, "the last worker of {} is gone")
        try:
            return future.result()
        except KilledWorker as error:
            raise NetworkError(
                f"each worker that was given the tests died: {error}",
                hint="its log says why; the scheduler tries `distributed.scheduler.allowed-failures` times",
            ) from error
        except CancelledError as error:
            raise NetworkError(
                f"the Dask scheduler at {self._address} is gone", hint="start it, and test again"
            ) from error

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()
