# SPDX-License-Identifier: Apache-2.0
"""Rules about the environment variables that builds read, and about installed packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge.check.finding import Finding
from kernforge.doctor.facts import GB
from kernforge.errors import ManifestError
from kernforge.toolchain import cuda_arch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernforge.doctor.facts import MachineFacts

# Memory that nvcc takes for a unit with torch's headers and one architecture.
_COMPILER = 4 * GB


def max_jobs(machine: MachineFacts) -> Iterator[Finding]:
    """``MAX_JOBS`` is the number of compilers that the JIT and torch's loader run at once."""
    value = machine.max_jobs.strip()
    if not value:
        return
    if not value.isdecimal():
        yield Finding(
            rule="max-jobs",
            severity="error",
            where="environment",
            message=f"MAX_JOBS is {value!r}, which is not a number: kernforge.load refuses it, "
            "torch's loader ignores it",
            hint="set it to a number of compilers, or unset it for one per core",
        )
    elif int(value) == 0:
        yield Finding(
            rule="max-jobs",
            severity="warning",
            where="environment",
            message="MAX_JOBS is 0: kernforge.load runs one job per core, torch's loader one per "
            "file, without a memory limit",
            hint="unset it, or set it to a number of compilers",
        )
    elif int(value) > 1 and int(value) * _COMPILER > machine.memory:
        jobs = max(1, machine.memory // _COMPILER)
        yield Finding(
            rule="max-jobs",
            severity="warning",
            where="environment",
            message=f"MAX_JOBS is {value}: {value} units with torch's headers take about "
            f"{int(value) * _COMPILER // GB} GB, and {machine.memory / GB:.1f} GB are free. kernforge "
            "starts as many as fit into the memory, torch's loader starts all of them",
            hint=f"set MAX_JOBS={jobs}",
        )


def arch_list(machine: MachineFacts) -> Iterator[Finding]:
    """``TORCH_CUDA_ARCH_LIST`` has the architectures that the JIT and torch's loader compile for."""
    value = machine.arch_list.strip()
    if not value or value == "native":
        return
    try:
        targets = cuda_arch.listed(value)
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
                message=f"TORCH_CUDA_ARCH_LIST is {value!r}, which makes no code for {name} (compute "
                f"capability {number}): modules of kernforge.load and torch's loader cannot run on it",
                hint=f"unset it to compile for the GPUs of this machine, or add {number}",
            )
    used = [
        target for target in targets if any(target.serves(capability) for _, capability in gpus)
    ]
    if used and len(used) < len(targets):
        rest = [str(target) for target in targets if target not in used]
        yield Finding(
            rule="arch-list",
            severity="warning",
            where="environment",
            message=f"TORCH_CUDA_ARCH_LIST has {', '.join(rest)}, which no GPU of this machine "
            "needs: each build of kernforge.load and torch's loader compiles for them too",
            hint="unset it during development; `kernforge build` takes architectures from build.toml",
        )


def packages(machine: MachineFacts) -> Iterator[Finding]:
    """Missing packages may be intended: loading needs only the package itself."""
    if machine.missing:
        yield Finding(
            rule="extra-build",
            severity="skipped",
            where="packages",
            message=f"{', '.join(machine.missing)} {'is' if len(machine.missing) == 1 else 'are'} not "
            "installed: kernels can be loaded here, but not built",
            hint="run `pip install 'kernforge[build]'`",
        )
    if machine.torch is None:
        yield Finding(
            rule="torch-missing",
            severity="skipped",
            where="torch",
            message="torch is not installed: kernels can be built here, but not loaded, tested or "
            "measured",
            hint="run `pip install torch`",
        )


RULES: tuple[Callable[[MachineFacts], Iterator[Finding]], ...] = (max_jobs, arch_list, packages)
"""In the order of their findings."""
