# SPDX-License-Identifier: Apache-2.0
import types

import pytest

from kernforge import jit_machine


@pytest.mark.parametrize(
    ("torch", "toolkit", "runtime"),
    [
        ("13.0", (13, 0), "libcudart.so.13"),
        ("13.2", (13, 0), "libcudart.so.13"),
        ("12.8", (12, 6), "libcudart.so.12"),
        ("13.0", (13, 2), ""),  # nvcc may call what torch's runtime does not have
        ("12.8", (13, 0), ""),
        ("11.8", (11, 8), ""),
        (None, (13, 0), ""),
        ("13.0", None, ""),
    ],
)
def test_the_runtime_is_torchs_where_it_has_what_the_toolkit_calls(torch, toolkit, runtime):
    version = types.SimpleNamespace(version=types.SimpleNamespace(cuda=torch))
    assert jit_machine._runtime(version, toolkit) == runtime
