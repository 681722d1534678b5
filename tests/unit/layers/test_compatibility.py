# SPDX-License-Identifier: Apache-2.0


import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.marked_layers import (  # noqa: E402 - skipped without torch
    Other,
    kernelize_on_cpu,
)
from torch import nn  # noqa: E402

from kernforge import (  # noqa: E402
    use_kernel_forward_from_hub,
)
from kernforge.errors import (  # noqa: E402
    LayerTypeError,
)


def test_a_loaded_layer_is_held_against_every_class_that_it_replaces(mapped):
    @use_kernel_forward_from_hub("Other")
    class Two(nn.Module):
        def forward(self, x, y):
            return x

    with pytest.raises(LayerTypeError, match=r"`Two`: different number of arguments"):
        kernelize_on_cpu(nn.Sequential(Other(), Two()))
