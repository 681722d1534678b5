# SPDX-License-Identifier: Apache-2.0
"""A mapping of kernels to marked layers, and a model that has them."""

import pytest

from kernforge import use_kernel_mapping


@pytest.fixture
def mapped():
    from support.marked_layers import AddOne  # noqa: PLC0415 - it needs torch

    with use_kernel_mapping(
        {name: {"cpu": AddOne} for name in ("Same", "Other", "same_function")},
        inherit_mapping=False,
    ):
        yield


@pytest.fixture
def model():
    from support.marked_layers import Other, Same  # noqa: PLC0415 - it needs torch
    from torch import nn  # noqa: PLC0415

    return nn.Sequential(Same(), Other())
