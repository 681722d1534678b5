# SPDX-License-Identifier: Apache-2.0
"""Names of kernels for a table."""

import pytest

from kernforge.bench.profiler.names import shortened


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("gate", "gate"),
        ("f(int, float*)", "f"),
        (
            "void of_rows<Cut<128, 4, 1, 10>, __nv_bfloat16, 0>(Forward)",
            "of_rows<Cut<...>, __nv_bfloat16, 0>",
        ),
        (
            "void at::native::(anonymous namespace)::norm<c10::BFloat16, float, (bool)0>(int, T1 *)",
            "norm<BFloat16, float, 0>",
        ),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void f<a<(b)1, c>, {lambda(int)#1}>(x)", "f<a<...>, lambda>"),
        (
            (
                "void at::elementwise<4, at::neg_cuda(at::Iterator &)::[lambda() (instance 2)]::operator ()()"
                " const::[lambda(int) (instance 1)], std::array<char *, 2>>(int, T2)"
            ),
            "elementwise<4, neg_cuda, array<...>>",
        ),
        ("void " + "x" * 90 + "(int)", "x" * 45 + "..."),
    ],
)
def test_a_name_keeps_what_tells_kernels_apart(name, short):
    assert shortened(name) == short
