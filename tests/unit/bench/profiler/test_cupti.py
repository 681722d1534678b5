# SPDX-License-Identifier: Apache-2.0
"""Launches of a trace of torch.profiler."""

from kernforge.bench.profiler import cupti

KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "void gradients<Cut<256>, __nv_bfloat16>(Backward)",
    "ts": 2000.5,
    "dur": 60.0,
    "args": {
        "registers per thread": 114,
        "shared memory": 33000,
        "grid": [264, 1, 1],
        "block": [256, 1, 1],
    },
}
COPY = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 1990.0, "dur": 3.0, "args": {}}
CALL = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1.0, "dur": 2.0}


def test_kernels_and_copies_in_the_order_of_their_starts_and_nothing_of_the_host():
    copy, kernel = cupti.launches({"traceEvents": [KERNEL, CALL, COPY]}, "9.0")
    assert (copy.kernel, copy.time_ns, copy.grid) == ("Memcpy DtoD", 3000.0, None)
    assert (kernel.time_ns, kernel.start_ns) == (60_000.0, 2_000_500.0)
    assert (kernel.grid, kernel.block, kernel.registers) == ((264, 1, 1), (256, 1, 1), 114)
    assert (kernel.warps_possible, kernel.limits) == (0.25, ("registers",))
    assert kernel.dram_read is None


def test_a_gpu_that_is_not_known_has_no_occupancy():
    (kernel,) = cupti.launches({"traceEvents": [KERNEL]}, "99.0")
    assert kernel.warps_possible is None
    assert cupti.launches({}, "9.0") == []
