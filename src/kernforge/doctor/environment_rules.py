# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the variables that builds read, and with what is installed for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge.check.finding import Finding
from kernforge.doctor.facts import GB
from kernforge.errors import ManifestError
from kernforge.toolchain import cuda_arch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernforge.doctor.facts import Machine

# What nvcc takes for a unit with torch's headers and one architecture.
_COMPILER = 4 * GB


def max_jobs(machine: Machine) -> Iterator[Finding]:
    """``MAX_JOBS`` is how many compilers the JIT and torch's loader start at once."""
    given = machine.max_jobs.strip()
    if not given:
        return
    if not given.isdecimal():
        yield Finding(
            rule="max-jobs",
            severity="error",
            where="environment",
            message=f"MAX_JOBS is {given!r}, which is no number: kernforge.load refuses it, torch's "
            "loader takes it for nothing",
            hint="a number of compilers at once, or nothing: one per core",
        )
    elif int(given) == 0:
        yield Finding(
            rule="max-jobs",
            severity="warning",
            where="environment",
            message="MAX_JOBS is 0: kernforge.load takes one job per core, torch's loader as many as "
            "there are files, whatever the memory",
            hint="unset it, or give a number of compilers",
        )
    elif int(given) > 1 and int(given) * _COMPILER > machine.memory:
        fit = max(1, machine.memory // _COMPILER)
        yield Finding(
            rule="max-jobs",
            severity="warning",
            where="environment",
            message=f"MAX_JOBS is {given}: so many units with torch's headers take some "
            f"{int(given) * _COMPILER // GB} GB, and {machine.memory / GB:.1f} GB are left. kernforge "
            "starts what the memory holds, torch's loader starts them all",
            hint=f"MAX_JOBS={fit}",
        )


def arch_list(machine: Machine) -> Iterator[Finding]:
    """``TORCH_CUDA_ARCH_LIST`` is what the JIT and torch's loader compile for."""
    given = machine.arch_list.strip()
    if not given or given == "native":
        return
    try:
        targets = cuda_arch.listed(given)
    except ManifestError as error:
        yield Finding(
            rule="arch-list",
            severity="error",
            where="environment",
            message=error.message,
            hint=error.hint,
        )
        return
    gpus = machine.torch.gpus if machine.torch else ()
    for name, capability in gpus:
        if not any(target.serves(capability) for target in targets):
            number = str(capability)
            yield Finding(
                rule="arch-list",
                severity="error",
                where="environment",
                message=f"TORCH_CUDA_ARCH_LIST is {given!r}, which has no code for {name} (compute "
                f"capability {number}): what kernforge.load or torch's loader compiles cannot run on it",
                hint=f"unset it, which compiles for the GPUs that are here, or add {number}",
            )
    used = [one for one in targets if any(one.serves(capability) for _, capability in gpus)]
    if used and len(used) < len(targets):
        rest = [str(one) for one in targets if one not in used]
        yield Finding(
            rule="arch-list",
            severity="warning",
            where="environment",
            message=f"TORCH_CUDA_ARCH_LIST names {', '.join(rest)} too, which no GPU here runs: each "
            "build of kernforge.load and torch's loader compiles for them",
            hint="unset it while you write; `kernforge build` takes its architectures from build.toml",
        )


def packages(machine: Machine) -> Iterator[Finding]:
    """Loading needs no more than the package itself, so what is missing may be meant so."""
    if machine.missing:
        yield Finding(
            rule="extra-build",
            severity="skipped",
            where="packages",
            message=f"{', '.join(machine.missing)} {'is' if len(machine.missing) == 1 else 'are'} not "
            "installed: kernels can be loaded here, and not be built",
            hint="pip install 'kernforge[build]'",
        )
    if machine.torch is None:
        yield Finding(
            rule="torch-missing",
            severity="skipped",
            where="torch",
            message="torch is not installed: kernels can be built here, and not be loaded, tested "
            "or measured",
            hint="pip install torch",
        )


RULES: tuple[Callable[[Machine], Iterator[Finding]], ...] = (max_jobs, arch_list, packages)
"""In the order in which they are told."""
