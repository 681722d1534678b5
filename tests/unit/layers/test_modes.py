# SPDX-License-Identifier: Apache-2.0
# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import LayerError, LayerTypeError
from kernforge.layers.modes import CUDAProperties, ROCMProperties


@pytest.mark.parametrize("kind", [CUDAProperties, ROCMProperties])
def test_a_range_has_whole_numbers_in_order(kind):
    assert kind(75, 75) == kind(min_capability=75, max_capability=75)
    with pytest.raises(LayerError, match=r"min_capability \(90\) must be <= max_capability"):
        kind(90, 75)
    with pytest.raises(LayerTypeError, match="'75', not an integer"):
        kind("75", 90)
