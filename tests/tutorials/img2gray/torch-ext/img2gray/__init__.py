import torch

from ._ops import ops


def img2gray(input: torch.Tensor) -> torch.Tensor:
    height, width, channels = input.shape
    assert channels == 3

    output = torch.empty((height, width), device=input.device, dtype=input.dtype)
    ops.img2gray(input, output)
    return output
