from torch.nn.functional import gelu, linear

from kernforge import Tensor, Workload

WORKLOADS = [
    Workload(
        name="128 x 256 x 256",
        inputs=(Tensor(shape=(128, 256)), Tensor(shape=(256, 256)), Tensor(shape=(256,))),
        reference=lambda x, weight, bias: gelu(linear(x.double(), weight.double(), bias.double())),
    ),
]
