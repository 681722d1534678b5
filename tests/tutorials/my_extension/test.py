import torch
import torch.nn as nn
import my_ops


class FusedReLUScale(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return my_ops.fused_relu_scale(x, self.scale)


x = torch.randn(1024, 1024, device='cuda')
module = FusedReLUScale(2.0)
out = module(x)
ref = torch.relu(x) * 2.0
print('max error:', (out - ref).abs().max().item())
assert torch.allclose(out, ref)
