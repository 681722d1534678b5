# SPDX-License-Identifier: Apache-2.0
"""Which torch and CUDA the variants of a build serve, and why not the others.

A pair is served if the loader would take one of the variants there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.artifact.variant import Backend, Variant
from kernforge.loader.host import Host
from kernforge.loader.resolve import resolve
from kernforge.toolchain.releases import torch_releases

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kernforge.artifact.version import Version2
    from kernforge.project.targets import TargetCandidate

_UNASKED = "it was not asked for (--variant '*' builds all)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What is not served, for one reason.

    Attributes:
        torch: series of torch, ascending.
        cuda: versions of CUDA, ascending; empty for CPUs.
    """

    torch: tuple[str, ...]
    cuda: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the variants of a build serve.

    Attributes:
        what: what is counted, ``torch x CUDA pairs`` or ``torch releases``.
        lacks: what is not served, by reason.
    """

    what: str
    served: int
    total: int
    lacks: tuple[Lack, ...]


def coverage(
    considered: Sequence[TargetCandidate],
    built: Collection[str],
    *,
    cpu: str,
    failed: Collection[str] = (),
    releases: Mapping[Version2, tuple[Version2, ...]] | None = None,
) -> Coverage | None:
    """What variants serve of the published builds of torch; None if that is not what they are for.

    Args:
        considered: every variant of the project.
        built: names of those that were built. If one is for CUDA, pairs of torch and CUDA are
            counted, otherwise releases of torch.
        failed: names of those that could not be built.
        releases: what ``torch_releases`` gives; tests pass their own.
    """
    known = torch_releases() if releases is None else releases
    variants = [Variant.parse(name) for name in (*built, *failed)]
    for_torch = [v for v in variants if v.framework.startswith("torch") and not v.is_noarch]
    if not for_torch:
        return None
    on_cuda = any(v.backend.name == "cuda" for v in for_torch)
    hosts = [*_hosts(known, cpu, on_cuda=on_cuda)]
    lacking = [host for host in hosts if not resolve(built, host).best]
    reasons: dict[str, list[Host]] = {}
    for host in lacking:
        reasons.setdefault(_reason(host, considered, failed), []).append(host)
    return Coverage(
        what="torch x CUDA pairs" if on_cuda else "torch releases",
        served=len(hosts) - len(lacking),
        total=len(hosts),
        lacks=tuple(_lack(hosts, reason) for reason, hosts in reasons.items()),
    )


def _hosts(
    releases: Mapping[Version2, tuple[Version2, ...]], cpu: str, *, on_cuda: bool
) -> Iterator[Host]:
    for torch, published in releases.items():
        for cuda in published if on_cuda else (None,):
            backend = Backend("cuda", cuda) if cuda else Backend("cpu")
            yield Host(cpu=cpu, os="linux", backend=backend, torch=torch, cxx11=True)


def _reason(host: Host, considered: Sequence[TargetCandidate], failed: Collection[str]) -> str:
    """Why no variant serves a machine: that of the candidate that would."""
    by_name = {each.name: each for each in considered}
    fitting = resolve(by_name, host).accepted
    if any(decision.name in failed for decision in fitting):
        return "it could not be built"
    if any(by_name[decision.name].target for decision in fitting):
        return _UNASKED
    if fitting:
        reason = by_name[fitting[0].name].reason.partition(":")[0]
        return reason.replace(f"CUDA {host.backend.version}", "that CUDA")
    parsed = (
        Variant.parse(each.name) for each in considered if each.name.startswith("torch-stable")
    )
    oldest = min((variant.version for variant in parsed if variant.version), default=None)
    if oldest and host.torch and host.torch < oldest:
        return f"it is older than the stable ABI {oldest} of the project"
    return "no variant of the project is for it"


def _lack(hosts: Sequence[Host], reason: str) -> Lack:
    torch = sorted({host.torch for host in hosts if host.torch})
    cuda = sorted({host.backend.version for host in hosts if host.backend.version})
    return Lack(torch=tuple(map(str, torch)), cuda=tuple(map(str, cuda)), reason=reason)
