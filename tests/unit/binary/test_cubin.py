# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from kernforge.binary import cubin
from kernforge.errors import CheckError

ELF = Path(__file__).parents[2] / "data" / "elf"
NVCC = (ELF / "nvcc.cubin").read_bytes()


def test_kernels_and_variables_are_those_of_the_source():
    assert set(cubin.kernels(NVCC)) == {"_Z5scalePf", "_Z4sinePf"}
    # Not __cudart_i2opi_f, a table of the sine's.
    assert cubin.variables(NVCC) == {"factor": 4}


def test_what_is_not_an_elf_file_is_refused():
    with pytest.raises(CheckError, match="not a readable ELF file"):
        cubin.kernels(b"PTX")
