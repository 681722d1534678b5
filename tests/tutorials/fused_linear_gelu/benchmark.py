import time

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

device = "cuda" if torch.cuda.is_available() else "cpu"
source = "fused_linear_gelu.cu" if device == "cuda" else "fused_linear_gelu.cpp"
fused = load(name="fused_linear_gelu", sources=[source], verbose=True)


class NativeModel(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.gelu = nn.GELU()

    def forward(self, x):
        return self.gelu(self.linear(x))


def synchronize():
    if device == "cuda":
        torch.cuda.synchronize()


model = NativeModel(256, 256).to(device)
x = torch.randn(128, 256, device=device)

with torch.no_grad():
    start = time.time()
    for _ in range(100):
        native = model(x)
    synchronize()
    native_time = time.time() - start

    start = time.time()
    for _ in range(100):
        ours = fused.fused_linear_gelu(x, model.linear.weight, model.linear.bias)
    synchronize()
    fused_time = time.time() - start

print(f"native: {native_time * 1000:.3f} ms, fused: {fused_time * 1000:.3f} ms")
print("max difference:", (native - ours).abs().max().item())
