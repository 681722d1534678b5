# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: pictures of four sizes, by two weights."""

from math import prod

from cases import BENCH_CASES
from reference import img2gray

from kernforge import Tensor, Workload


def one_off(got, right):
    """Whether no byte is more than one off."""
    return all((a.short() - b.short()).abs().max() <= 1 for a, b in zip(got, right, strict=True))


def exact(case):
    return Workload(
        name=str(case),
        inputs=(Tensor(shape=case.shape, dtype="uint8"),),
        reference=img2gray,
        size=prod(case.shape[:-1]),
        family="pixels",
    )


def within_one(case):
    return Workload(
        name=f"{case} bt601, one off allowed",
        inputs=(Tensor(shape=case.shape, dtype="uint8"), "bt601"),
        reference=img2gray,
        size=prod(case.shape[:-1]),
        family="bt601, one off allowed",
        accepts=one_off,
    )


WORKLOADS = [make(case) for make in (exact, within_one) for case in BENCH_CASES]
