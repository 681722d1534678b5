# SPDX-License-Identifier: Apache-2.0
"""Variants of a manifest: buildable, default, or left out with a reason."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.manifest.document import Manifest
from kernforge.manifest.model import Backend as BackendName, CudaGeneral, Torch, TorchNoarch, TvmFfi
from kernforge.toolchain.installed import TorchHere
from kernforge.toolchain.lockfile import Lock
from kernforge.toolchain.releases import SERVING, TOOLKITS, TVM_FFI, USUAL, torch_releases

COMPILED = ("cpu", "cuda")
# Headers older than this lack what a stable-ABI binding registers its operators with.
_OLDEST_STABLE = Version2(2, 10)
_DEFAULT_RELEASES = 2
_CUDA_HEADERS_FOR_ARM_SINCE = Version2(2, 11)
_COMPILER_OF = {
    "cann": "Huawei's CANN toolkit",
    "metal": "Apple's compiler on a Mac",
    "neuron": "AWS's Neuron SDK",
    "rocm": "AMD's hipcc",
    "tpu": "Google's TPU toolchain",
    "xpu": "Intel's oneAPI compiler",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One variant to build, with its toolchain.

    Attributes:
        torch: series of the torch headers; None when nothing is compiled.
        cuda: CUDA toolkit; None when nothing is compiled for a GPU.
        tvm_ffi: series of the tvm-ffi headers; None for the other frameworks.
        cross: whether the building machine has another processor than the variant.
    """

    variant: Variant
    torch: Version2 | None = None
    cuda: Version2 | None = None
    tvm_ffi: Version2 | None = None
    cross: bool = False

    @property
    def cross_cpu(self) -> str:
        """Processor of a cross build; empty for this machine's."""
        return self.variant.cpu if self.cross else ""

    @property
    def borrows_cuda_headers(self) -> bool:
        """Whether torch's CUDA headers come from the wheel for the building machine.

        The index's wheels for ARM were for the CPU alone before torch 2.11. The headers that they
        lack do not depend on the processor: where both wheels have them, they are equal, but for
        which libraries torch was built with (``CUDAConfig.h``).
        """
        return bool(
            self.cross and self.cuda and self.torch and self.torch < _CUDA_HEADERS_FOR_ARM_SINCE
        )

    @property
    def name(self) -> str:
        """The variant's name."""
        return str(self.variant)

    @property
    def backend(self) -> BackendName:
        """Name of the backend, as the manifest spells it."""
        name = "cann" if self.variant.backend.name == "npu" else self.variant.backend.name
        return cast("BackendName", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCandidate:
    """A variant of the manifest, buildable or left out.

    Attributes:
        name: the variant's name, or the backend's where no name can be made.
        target: what to build; None when it is left out.
        default: whether `build` builds it unasked.
        reason: why it is left out or not built by default; empty otherwise.
        only_by_cpu: whether it is for another processor, and a pattern that means variants for the
            building machine's does not mean it, too, unless it has the processor's name.
    """

    name: str
    target: Target | None
    default: bool
    reason: str = ""
    only_by_cpu: bool = False


def candidates(
    manifest: Manifest,
    *,
    cpu: str,
    releases: Mapping[Version2, tuple[Version2, ...]] | None = None,
    local_toolkits: Iterable[Version2] = (),
    torch_here: TorchHere | None = None,
    cross: bool = False,
) -> tuple[TargetCandidate, ...]:
    """Every variant of a manifest, buildable or with the reason why not.

    Args:
        cpu: processor of the machines to build for, as ``"x86_64"``.
        local_toolkits: CUDA versions that the user has compilers for, in addition to the index.
        torch_here: the torch that is installed here. What is built for one torch is built for this
            one by default, and where there is none, or no compiler for its CUDA, for the newest.
        cross: whether they are built on a machine of another processor.
    """
    given = _Given(
        manifest=manifest,
        cpu=cpu,
        releases=torch_releases() if releases is None else releases,
        toolkits=tuple(sorted({*TOOLKITS, *local_toolkits})),
        torch_here=torch_here,
    )
    backends = dict.fromkeys(manifest.general.backends)  # one may be listed twice
    considered = [each for backend in backends for each in _for_backend(given, backend)]
    return tuple(
        replace(each, target=replace(each.target, cross=True))
        if cross and each.target and not each.target.variant.is_noarch
        else each
        for each in considered
    )


def for_another_cpu(considered: Iterable[TargetCandidate], cpu: str) -> tuple[TargetCandidate, ...]:
    """Make the candidates of another processor opt-in."""
    reason = f"for {cpu}: ask for it with --system {cpu}-linux, or with --variant and that name"
    return tuple(
        replace(
            each, default=False, reason=reason if each.target else each.reason, only_by_cpu=True
        )
        for each in considered
        if f"-{cpu}-" in each.name
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """Arguments of ``candidates``."""

    manifest: Manifest
    cpu: str
    releases: Mapping[Version2, tuple[Version2, ...]]
    toolkits: tuple[Version2, ...]
    torch_here: TorchHere | None

    def outside_cuda(self, cuda: Version2 | None) -> str:
        """Why the manifest's bounds exclude a CUDA; empty if they do not."""
        return _outside("CUDA", self.manifest.general.cuda, cuda)


def within_lock(
    considered: Iterable[TargetCandidate], patterns: Sequence[str], lock: Lock
) -> tuple[TargetCandidate, ...]:
    """Restrict candidates to what a frozen lock can build.

    Without a pattern, variants of one torch are built if the lock has their parts: the same
    everywhere, whatever torch is installed. A pattern means those that it has the parts of; a name
    means that variant, whatever the lock has.
    """
    wanted: list[TargetCandidate] = []
    for each in considered:
        target = each.target
        if target is None or each.name in patterns:
            wanted.append(each)
        elif patterns:
            lacks = "kernforge.lock does not have its torch or CUDA; `kernforge lock` adds them"
            has = _has(lock, target)
            wanted.append(each if has else replace(each, target=None, reason=lacks))
        elif each.only_by_cpu or (target.variant.framework != "torch" and target.cuda is None):
            wanted.append(each)
        else:
            has = _has(lock, target)
            reason = "" if has else "kernforge.lock does not have it; ask for it with --variant"
            wanted.append(replace(each, default=has, reason=reason))
    return tuple(wanted)


def _has(lock: Lock, target: Target) -> bool:
    """Whether a lock has a target's torch and CUDA, if it needs them."""
    torch = lock.versions("torch", target.cross_cpu)
    cuda = lock.versions("cudart" if target.cross else "cuda", target.cross_cpu)
    has_torch = target.variant.framework != "torch" or str(target.torch) in torch
    return has_torch and (target.cuda is None or str(target.cuda) in cuda)


def choose(considered: Sequence[TargetCandidate], patterns: Sequence[str]) -> tuple[Target, ...]:
    """Select targets by patterns, or the defaults without one.

    Args:
        patterns: names, with ``*`` and ``?`` as in a shell. Variants for another processor than the
            building machine's are meant by a pattern that names it, or that fits no others.
    """
    buildable = {c.name: c.target for c in considered if c.target is not None}
    if not patterns:
        targets = [c.target for c in considered if c.target and c.default]
        if not targets:
            reasons = "\n".join(f"  {c.name}: {c.reason}" for c in considered if not c.only_by_cpu)
            raise UsageError(f"there is nothing to build:\n{reasons}")
        return tuple(targets)
    here = {candidate.name for candidate in considered if not candidate.only_by_cpu}
    chosen: dict[str, Target] = {}
    for pattern in patterns:
        names = fnmatch.filter(buildable, pattern)
        if fnmatch.filter(here, pattern):
            names = [n for n in names if n in here or buildable[n].variant.cpu in pattern]
        if not names:
            raise UsageError(f"no variant is named {pattern!r}", hint=_hint(pattern, considered))
        chosen |= {name: target for name, target in buildable.items() if name in names}
    return tuple(chosen.values())


def _hint(pattern: str, considered: Sequence[TargetCandidate]) -> str:
    reasons = {c.name: c.reason for c in considered if fnmatch.fnmatchcase(c.name, pattern)}
    if pattern in reasons:
        return f"it is left out: {reasons[pattern]}"
    if reasons:
        return "\n".join(f"{name} is left out: {reason}" for name, reason in reasons.items())
    names = [c.name for c in considered if c.target]
    if any(pattern in name for name in names):
        return f"a part of a name is written as a pattern: '*{pattern}*'"
    near = difflib.get_close_matches(pattern, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "`kernforge build --list` lists them"


def _for_backend(given: _Given, backend: BackendName) -> Iterator[TargetCandidate]:
    framework = given.manifest.framework
    for name, language in given.manifest.other_languages.items():
        if language.endswith(f"-{backend}"):
            reason = f"[kernel.{name}] is of language {language}, which kernforge does not compile"
            yield _left_out(backend, reason)
            return
    if isinstance(framework, TorchNoarch) or (
        isinstance(framework, Torch) and not given.manifest.sections(backend)
    ):
        target = Target(variant=Variant.noarch("npu" if backend == "cann" else backend))
        yield TargetCandidate(name=target.name, target=target, default=True)
    elif backend not in COMPILED:
        yield _left_out(backend, f"needs {_COMPILER_OF[backend]}, which kernforge does not drive")
    elif isinstance(framework, TvmFfi):
        yield from _for_all_cuda(given, backend, _tvm_ffi)
    elif stable := framework.stable_abi_for(backend):
        yield from _for_all_cuda(given, backend, functools.partial(_stable, stable))
    else:
        yield from _full(given, framework, backend)


def _for_all_cuda(
    given: _Given, backend: BackendName, make: Callable[[Backend, str], Target]
) -> Iterator[TargetCandidate]:
    """Variants of a binary that runs with every later CUDA of its major version."""
    for cuda in given.toolkits if backend == "cuda" else (None,):
        target = make(Backend(backend, cuda), given.cpu)
        if reason := given.outside_cuda(cuda):
            yield _left_out(target.name, reason)
            continue
        reason = _needless(given, backend, cuda) if cuda else ""
        yield TargetCandidate(name=target.name, target=target, default=not reason, reason=reason)


def _needless(given: _Given, backend: BackendName, cuda: Version2) -> str:
    """Why a binary for this CUDA is no default; empty if it is."""
    inside = [c for c in given.toolkits if not given.outside_cuda(c)]
    serving = [c for c in inside if c in SERVING] or inside[:1]
    here = given.torch_here
    if here and here.cuda:  # the one that this torch loads, if there is one
        fitting = [c for c in serving if c.major == here.cuda.major and c <= here.cuda]
    else:
        fitting = [c for c in serving if c == USUAL] if here else []
    if cuda in (fitting[-1:] or serving):
        return ""
    if cuda in serving and here:
        return f"not for the installed torch {here.version}; ask for it with --variant"
    if older := [c for c in serving if c.major == cuda.major and c < cuda]:
        return f"{Backend(backend, older[-1])} serves it too; ask for it with --variant"
    return "ask for it with --variant"


def _stable(version: Version2, backend: Backend, cpu: str) -> Target:
    variant = Variant(
        framework="torch-stable-abi", version=version, backend=backend, cpu=cpu, os="linux"
    )
    headers = max(version, _OLDEST_STABLE)
    return Target(variant=variant, torch=headers, cuda=backend.version)


def _tvm_ffi(backend: Backend, cpu: str) -> Target:
    variant = Variant(framework="tvm-ffi", version=TVM_FFI, backend=backend, cpu=cpu, os="linux")
    return Target(variant=variant, cuda=backend.version, tvm_ffi=TVM_FFI)


def _full(given: _Given, framework: Torch, backend: BackendName) -> Iterator[TargetCandidate]:
    inside = [t for t in given.releases if not _outside("torch", framework, t)]
    # Those that can be built: a manifest may end at a CUDA that the newest torches have left.
    served = [t for t in inside if backend != "cuda" or _usable(given, given.releases[t])]
    newest = served[-_DEFAULT_RELEASES:]
    here = _for_torch_here(given, framework, backend)
    for torch, published in given.releases.items():
        for cuda in published if backend == "cuda" else (None,):
            variant = Variant(
                framework="torch",
                version=torch,
                backend=Backend(backend, cuda),
                cpu=given.cpu,
                os="linux",
                cxx11=True,
            )
            reason = (
                _outside("torch", framework, torch)
                or given.outside_cuda(cuda)
                or _no_compiler(given, cuda)
            )
            if reason:
                yield _left_out(str(variant), reason)
                continue
            unasked = "" if torch in newest else "an older torch; ask for it with --variant"
            if here:
                unasked = "" if (torch, cuda) == here else _not_here(here)
            yield TargetCandidate(
                name=str(variant),
                target=Target(variant=variant, torch=torch, cuda=cuda),
                default=not unasked,
                reason=unasked,
            )


def _for_torch_here(
    given: _Given, framework: Torch, backend: BackendName
) -> tuple[Version2, Version2 | None] | None:
    """The installed torch and the CUDA to build for; None if no variant fits it."""
    here = given.torch_here
    if here is None or _outside("torch", framework, here.version):
        return None
    published = given.releases.get(here.version, ())
    if backend != "cuda":
        return (here.version, None) if published else None
    usable = _usable(given, published)
    if here.cuda:
        usable = [c for c in usable if c[0] == here.cuda[0] and c <= here.cuda][::-1]
    else:  # a build of torch without CUDA does not say which
        usable.sort(key=lambda cuda: cuda != USUAL)
    return (here.version, usable[0]) if usable else None


def _usable(given: _Given, published: Iterable[Version2]) -> list[Version2]:
    """CUDA versions of a torch that the manifest allows and that have a compiler."""
    return [
        cuda for cuda in published if not given.outside_cuda(cuda) and not _no_compiler(given, cuda)
    ]


def _not_here(here: tuple[Version2, Version2 | None]) -> str:
    cuda = f", for which CUDA {here[1]} is built" if here[1] else ""
    return f"not for the installed torch {here[0]}{cuda}; ask for it with --variant"


def _no_compiler(given: _Given, cuda: Version2 | None) -> str:
    if cuda is None or cuda in given.toolkits:
        return ""
    return (
        f"the package index carries no compiler for CUDA {cuda}: name an installed toolkit in "
        "KERNFORGE_CUDA_HOME"
    )


def _outside(name: str, bounds: CudaGeneral | Torch, version: Version2 | None) -> str:
    if version and bounds.minver and version < bounds.minver:
        return f"older than the manifest's {name} minver {bounds.minver}"
    if version and bounds.maxver and version > bounds.maxver:
        return f"newer than the manifest's {name} maxver {bounds.maxver}"
    return ""


def _left_out(name: str, reason: str) -> TargetCandidate:
    return TargetCandidate(name=name, target=None, default=False, reason=reason)
