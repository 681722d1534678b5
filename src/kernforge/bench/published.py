# SPDX-License-Identifier: Apache-2.0
"""A published or local kernel with its benchmark scripts, and the JSON of ``kernels benchmark``.

That document has ``results`` (``workload``, ``timingResults`` in milliseconds, ``verified``),
``machineInfo``, ``kernelCommitSha``, ``benchmarkScriptPath`` and ``benchmarkScriptSha``
(``kernels.cli.benchmark`` of the hub's client 0.17). Ours is beside theirs, under ``kernforge``.
"""

from __future__ import annotations

import hashlib
import platform
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernforge.artifact.integrity import tree_files
from kernforge.bench import report as bench_report
from kernforge.bench.classes import KERNEL
from kernforge.errors import NotPublishedError, UsageError
from kernforge.loader import search as loader_search
from kernforge.loader.fitness import verify
from kernforge.loader.search import Search
from kernforge.registry.api import member_for, open_default
from kernforge.registry.names import BENCHMARKS, request
from kernforge.trust import admission
from kernforge.trust.policy import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kernforge.bench.run import Report
    from kernforge.registry.api import Registry
    from kernforge.system.environment import Environment

_PLACES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A repository on this machine.

    Attributes:
        kernel: what loads the kernel: a directory, or ``owner/name@commit``.
        id: the id of the build for this machine.
    """

    root: Path
    kernel: str
    id: str


def asked(
    text: str, version: str | None, revision: str | None
) -> tuple[str, str | None, str | None]:
    """Repo id, version and revision of ``owner/name[@v1|@revision]``.

    Raises:
        UsageError: none or two are named.
    """
    repo_id, at, named = text.partition("@")
    number = named.removeprefix("v")
    if at and named.isdigit():
        raise UsageError(f"{text!r} names no branch", hint=f"write {repo_id}@v{named}")
    if (bool(at) + (version is not None) + (revision is not None)) != 1:
        raise UsageError(
            f"{repo_id} needs one version; it is not a directory here",
            hint=f"write {repo_id}@v1, or give one of --version and --revision",
        )
    if at and number.isdigit():
        return repo_id, number, None
    return repo_id, version, named or revision


def published(
    registry: Registry,
    environment: Environment,
    repo_id: str,
    version: str | None,
    revision: str | None,
    *,
    backend: str | None,
    trusted: bool,
) -> Repo:
    """A published kernel, fetched and verified, and its scripts, fetched.

    No signature covers the scripts: where the trust policy demands one, they are refused.

    Raises:
        TrustError: the policy refuses the kernel or its scripts.
        NotPublishedError: there is no such kernel or version, or it has no scripts.
        NoVariantError: no variant fits.
        IntegrityError: a file is not what was built.
    """
    search = Search(registry, backend, environment, trusted)
    root = loader_search.find_kernel(search, request(repo_id, version, revision))
    info = root.repo_info
    if info is None:  # LOCAL_KERNELS puts a directory in its place
        return local(_repo_of(root.path), environment, backend=backend, trusted=trusted)
    member = member_for(registry, info.repo_id)
    admission.admit_build(
        Subject(repo_id=info.repo_id, registry=member.url),
        vouches=member.trusted_publisher,
        environment=environment,
        trust_remote_code=trusted,
    )
    for node in root.walk():
        verify(node)
    scripts = member.folder(info.repo_id, info.revision, BENCHMARKS)
    if scripts is None:
        raise NotPublishedError(
            f"{info.repo_id} at {info.revision} has no {BENCHMARKS}/",
            hint="its publisher brings none; a directory with build/ and benchmarks/ will do too",
        )
    tree_files(scripts, within=member.link_root(info.repo_id))
    return Repo(root=scripts.parent, kernel=f"{info.repo_id}@{info.revision}", id=root.metadata.id)


def local(directory: Path, environment: Environment, *, backend: str | None, trusted: bool) -> Repo:
    """A repository or a kernel project with ``benchmarks/`` and a build that may be loaded.

    Raises:
        NoVariantError: it holds no build that fits.
        TrustError: the trust policy refuses it.
    """
    directory = directory.absolute()
    # The registry is for what the kernel depends on.
    search = Search(open_default(environment), backend, environment, trusted)
    node = loader_search.find_local(search, directory)
    return Repo(root=directory, kernel=str(directory), id=node.metadata.id)


def _repo_of(variant: Path) -> Path:
    return variant.parents[1] if variant.parent.name == "build" else variant.parent


def sha_of(scripts: Iterable[Path]) -> str:
    """Hex SHA-256 of files, one after the other."""
    return hashlib.sha256(b"".join(script.read_bytes() for script in scripts)).hexdigest()


def payload(report: Report, *, kernel_id: str, scripts_sha: str) -> dict[str, Any]:
    """The hub's document, with ours in it.

    Args:
        kernel_id: the id in the kernel's metadata; what its build names itself comes last in it.
        scripts_sha: hex SHA-256 of all scripts, one after the other.
    """
    machine = report.machine
    results = []
    mode = "hot" if "hot" in report.settings.modes else report.settings.modes[0]
    for case in report.cases:
        measured = next(each for each in case.of(mode) if each.candidate == KERNEL)
        if measured.median is None:
            continue
        entry = {"workload": case.name, "timingResults": _times(measured.times_ns)}
        results.append(entry | ({"verified": True} if measured.checked else {}))
    return {
        "results": results,
        "machineInfo": {
            "gpu": machine.gpu or "N/A",
            "backend": f"CUDA {machine.cuda}" if machine.gpu else "CPU",
            "pytorchVersion": machine.torch,
            "os": f"{platform.system()} {platform.release()}",
            "cpu": platform.processor() or platform.machine() or "Unknown",
        },
        "kernelCommitSha": kernel_id.rpartition("_")[2],
        "benchmarkScriptPath": "benchmarks",
        "benchmarkScriptSha": scripts_sha,
        "kernforge": bench_report.document(report),
    }


def _times(times_ns: Sequence[float]) -> dict[str, float]:
    """The spread of calls in milliseconds, as the hub's client gives it."""
    times = [each / 1e6 for each in times_ns]
    q1, _, q3 = statistics.quantiles(times, n=4, method="inclusive")
    reach = 1.5 * (q3 - q1)
    found = {
        "mean_ms": statistics.fmean(times),
        "std_ms": statistics.pstdev(times),
        "min_ms": min(times),
        "max_ms": max(times),
        "q1_ms": q1,
        "q3_ms": q3,
        "iqr_ms": q3 - q1,
    }
    return {
        **{name: round(value, _PLACES) for name, value in found.items()},
        "outliers": sum(not q1 - reach <= each <= q3 + reach for each in times),
        "iterations": len(times),
    }
