# SPDX-License-Identifier: Apache-2.0
"""The Python packages that a kernel may depend on: a closed list, the same as the hub's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonDepend:
    """One allowed dependency.

    Attributes:
        name: name in ``python-depends``.
        package: name of the package for pip.
        module: name of the module to import; None for a package without Python code.
    """

    name: str
    package: str
    module: str | None


_GENERAL = (
    PythonDepend(name="einops", package="einops", module="einops"),
    PythonDepend(name="helion", package="helion", module="helion"),
    PythonDepend(name="tvm-ffi", package="apache-tvm-ffi", module="tvm_ffi"),
)
_OF_BACKEND = {
    "cuda": (
        PythonDepend(name="nvidia-cutlass-dsl", package="nvidia-cutlass-dsl", module="cutlass"),
    ),
    "neuron": (PythonDepend(name="nki", package="nki", module="nki"),),
    "xpu": (PythonDepend(name="onednn", package="onednn-devel", module=None),),
}


def python_depends(backend: str) -> dict[str, PythonDepend]:
    """The packages that a kernel of this backend may depend on, by name."""
    return {depend.name: depend for depend in (*_GENERAL, *_OF_BACKEND.get(backend, ()))}
