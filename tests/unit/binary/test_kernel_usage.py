# SPDX-License-Identifier: Apache-2.0

from kernforge.binary import kernel_usage
from kernforge.binary.cubin import FunctionUsage


def test_short_names():
    name = (
        "void a::(anonymous namespace)::k<a::(anonymous namespace)::F<float (*)(int)>, 4>"
        "(a::F*, long)"
    )
    use = FunctionUsage(
        **dict.fromkeys(("registers", "stack", "spill_stores", "spill_loads", "shared"), 0),
        **dict.fromkeys(("barriers", "threads", "required"), 0),
        symbol="s",
        kernel=True,
    )
    one = kernel_usage.Kernel(name=name, arch="9.0", use=use, fills=())
    assert one.short == "a::k<a::F<float (*)(int)>, 4>"
