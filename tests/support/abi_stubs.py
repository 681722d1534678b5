# SPDX-License-Identifier: Apache-2.0
"""The stubs of the ABI floor and its extras, made by a compiler of this machine."""

from pathlib import Path

from support.programs import output

from kernforge.binary import abi_floor


def make(directory: Path, cpu: str, *, backend: str | None = "cpu", cxx: str = "g++") -> None:
    """Make them in a new directory, with torch's libraries of a backend."""
    directory.mkdir()
    torch = () if backend is None else abi_floor.torch_sonames(backend)
    stubs = (*abi_floor.system_stubs(cpu), *abi_floor.empty_stubs(torch))
    texts = {abi_floor.COMPAT_SOURCE: abi_floor.compat_source()}
    texts["stubs.sh"] = abi_floor.stubs_script(stubs)
    for stub in stubs:
        texts |= stub.texts
    for name, text in texts.items():
        (directory / name).write_text(text)
    output(abi_floor.compat_argv(cxx), directory)
    output(("sh", "-eu", "stubs.sh", cxx), directory)
