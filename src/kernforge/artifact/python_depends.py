# SPDX-License-Identifier: Apache-2.0
"""The Python packages that a kernel may depend on: a closed list, the same as the hub's."""

from __future__ import annotations

from typing import NamedTuple


class PythonDepend(NamedTuple):
    """An allowed dependency.

    Attributes:
        package: name of the package for pip.
        module: name of the module to import; None for a package without Python code.
    """

    package: str
    module: str | None


_GENERAL = {
    "einops": PythonDepend("einops", "einops"),
    "helion": PythonDepend("helion", "helion"),
    "tvm-ffi": PythonDepend("apache-tvm-ffi", "tvm_ffi"),
}
_OF_BACKEND = {
    "cuda": {"nvidia-cutlass-dsl": PythonDepend("nvidia-cutlass-dsl", "cutlass")},
    "neuron": {"nki": PythonDepend("nki", "nki")},
    "xpu": {"onednn": PythonDepend("onednn-devel", None)},
}


def python_depends(backend: str) -> dict[str, PythonDepend]:
    """The packages that a kernel of this backend may depend on, by their name in the metadata."""
    return _GENERAL | _OF_BACKEND.get(backend, {})
