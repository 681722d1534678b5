# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from kernforge.binary import cubin, elf
from kernforge.errors import CheckError

ELF = Path(__file__).parents[2] / "data" / "elf"
NVCC, NVRTC = (ELF / "nvcc.cubin").read_bytes(), (ELF / "nvrtc.cubin").read_bytes()
TOOL = ".note.nv.tkinfo"


def changed(name: str, at: int = 0) -> bytes:
    """NVRTC's cubin with one bit of a section turned."""
    section = elf.section(NVRTC, name)
    assert NVRTC.count(section) == 1
    place = NVRTC.index(section) + at
    return NVRTC[:place] + bytes([NVRTC[place] ^ 1]) + NVRTC[place + 1 :]


def test_kernels_and_variables_are_those_of_the_source():
    assert set(cubin.kernels(NVCC)) == {"_Z5scalePf", "_Z4sinePf"}
    # Not __cudart_i2opi_f, a table of the sine's.
    assert cubin.variables(NVCC) == {"factor"}


def test_the_compilers_note_of_itself_is_not_a_difference():
    assert elf.section(NVCC, TOOL) != elf.section(NVRTC, TOOL)
    assert cubin.same_code(NVCC, NVRTC)


@pytest.mark.parametrize("name", [".text._Z5scalePf", ".nv.global.init", ".rela.nv.constant4"])
def test_another_bit_of_code_or_data_is_another_code(name):
    assert not cubin.same_code(NVCC, changed(name))


WITHOUT, WITH = ((ELF / f"{by}_constants.cubin").read_bytes() for by in ("nvcc", "nvrtc"))


def test_constants_that_no_code_uses_are_not_a_difference():
    assert cubin.variables(WITH) - cubin.variables(WITHOUT)
    (spare,) = cubin.unused(WITH, WITHOUT)
    assert spare.endswith("kWidthE")
    assert "_INTERNAL_" not in spare
    assert cubin.same_code(WITH, WITHOUT)
    # What nvcc keeps, its host code may register.
    assert not cubin.same_code(WITHOUT, WITH)


def test_code_beside_such_constants_is_compared():
    section = elf.section(WITH, f".text.{cubin.kernels(WITH)[0]}")
    place = WITH.index(section)
    turned = WITH[:place] + bytes([WITH[place] ^ 1]) + WITH[place + 1 :]
    assert not cubin.same_code(turned, WITHOUT)


def test_the_name_of_unnamed_namespaces_is_read():
    name = cubin.unnamed(WITHOUT)
    assert name.startswith("_GLOBAL__N__")
    assert f"{len(name)}{name}" in cubin.kernels(WITHOUT)[0]
    assert not cubin.unnamed(NVCC)


def test_what_is_not_an_elf_file_is_refused():
    with pytest.raises(CheckError, match="not a readable ELF file"):
        cubin.kernels(b"PTX")
