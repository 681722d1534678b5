import torch
from torch.utils.cpp_extension import load

add = load(name="add", sources=["add_kernel.cu"])

if torch.cuda.is_available():
    a = torch.randn(1000, device="cuda")
    b = torch.randn(1000, device="cuda")
    assert torch.equal(add.add_cuda(a, b), a + b)
