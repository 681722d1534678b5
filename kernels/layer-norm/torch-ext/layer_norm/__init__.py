# SPDX-License-Identifier: Apache-2.0
"""LayerNorm and RMSNorm, with a residual that is added first, on CPUs and NVIDIA GPUs."""

from . import layers
from .functional import add_layer_norm, add_rms_norm, layer_norm, rms_norm

__all__ = ["add_layer_norm", "add_rms_norm", "layer_norm", "layers", "rms_norm"]
