# SPDX-License-Identifier: Apache-2.0
"""A profile as people read it."""

from kernforge.bench.profiler import text

ROOF = {
    "bytes": 67_000_000,
    "flops": 0,
    "intensity": 0.0,
    "ridge": None,
    "copy_bytes_per_s": 4.1e12,
    "product_flops_per_s": None,
    "roof_ns": 16_000.0,
    "bound": "memory",
    "copy_dram_bytes_per_s": 3e12,
}
LAUNCH = {
    "name": "sum<float>",
    "kernel": "void sum<float>(float*)",
    "time_ns": 20_000.0,
    "share": 1.0,
    "grid": (8192, 4, 1),
    "block": (128, 1, 1),
    "registers": 40,
    "shared_bytes": 48_000,
    "warps_possible": 0.5,
    "limit": {"by": "waiting", "used": 0.5, "sentence": "it waits"},
}
COUNTED = LAUNCH | {
    "warps_active": 0.4,
    "dram_bytes_per_s": 3.2e12,
    "l2": 0.7,
    "tensor": 0.0,
    "fma": 0.11,
    "alu": 0.12,
    "issue": 0.5,
    "local_sectors": 1000,
    "conflicts": 0.5,
}


def profile(*launches, **more):
    plain = {"candidate": "kernel", "refused": "", "skipped": "", "kernels_ns": 20_000.0}
    times = {"median_ns": 20_000.0, "share_of_roof": 0.8, "bytes_per_s": 3.3e12, "flops_per_s": 0.0}
    return plain | times | {"span_ns": None, "dram_bytes": None, "launches": [*launches]} | more


def shown(*profiles, **roof):
    document = {
        "machine": {"gpu": "NVIDIA H200", "driver": None, "cuda": "13.0", "torch": "2.11.0"},
        "tool": {"name": "ncu", "version": "2025.3.1", "conditions": "each kernel alone"},
        "workloads": [{"name": "a", "roofline": ROOF | roof, "profiles": [*profiles]}],
    }
    return list(text.lines(document))


def test_a_column_that_nothing_is_in_is_left_out():
    lines = shown(profile(LAUNCH))
    assert lines[:2] == [
        "NVIDIA H200, CUDA 13.0, torch 2.11.0",
        "kernels by ncu 2025.3.1: each kernel alone",
    ]
    assert lines[3] == "a: 67 MB to move; the copy 4100 GB/s; memory binds, 16 us at least"
    assert lines[4] == "kernel: 20 us, 80.0% of the roof, 3300 GB/s (kernforge bench, cold)"
    head, row = lines[6].split(), lines[7].split()
    assert head == ["kernel", "time", "share", "grid", "block", "registers", "shared", "occupancy"]
    assert row == [
        *("1", "sum<float>", "20", "us", "100%", "8192", "x", "4", "128"),
        *("40", "48", "kB", "50%"),
    ]
    assert lines[8:] == ["  1: it waits"]


def test_what_is_counted_has_columns_and_what_is_costly_a_line():
    lines = shown(profile(COUNTED, dram_bytes=100e6))
    assert "  DRAM moves 1.49 times the bytes that the workload declares (100 MB)" in lines
    row = next(line for line in lines if "sum<float>" in line)
    assert row.split()[-8:] == ["50%", "3200", "GB/s", "70%", "0%", "11%", "12%", "50%"]
    assert any("32 kB of local memory" in line for line in lines)
    assert any("bank conflicts are 50%" in line for line in lines)


def test_arithmetic_has_its_rates():
    lines = shown(
        profile(LAUNCH, flops_per_s=7.5e14),
        flops=10**12,
        intensity=14925.0,
        ridge=195.0,
        product_flops_per_s=8e14,
        bound="arithmetic",
    )
    assert lines[3] == (
        "a: 67 MB to move, 1000 GFLOP, 14925 FLOP a byte; the copy 4100 GB/s, "
        "torch's product 800 TFLOP/s, ridge 195 FLOP a byte; arithmetic binds, 16 us at least"
    )
    assert "750 TFLOP/s" in lines[4]


def test_gaps_between_kernels_are_said_where_they_are_known():
    lines = shown(profile(LAUNCH, LAUNCH, span_ns=27_000.0, kernels_ns=20_000.0))
    assert lines[5] == "  2 launches, 20 us in kernels, 7 us between them"


def test_the_longest_of_many_launches_are_shown_in_their_order():
    many = [
        LAUNCH | {"name": f"k{at}", "kernel": f"k{at}", "time_ns": float(at), "share": 0.05}
        for at in range(20)
    ]
    lines = shown(profile(*many))
    names = [line.split()[1] for line in lines if line.endswith("50%")]
    assert names == [f"k{at}" for at in range(8, 20)]
    assert "  8 shorter ones are not shown; --out has all" in lines


def test_who_has_no_profile_has_a_reason():
    lines = shown(
        profile(refused="the result is wrong"), profile(skipped="it does not compute this workload")
    )
    assert lines[4:] == [
        "kernel: refused: the result is wrong",
        "kernel: skipped: it does not compute this workload",
    ]


def test_launches_of_one_kernel_are_one_row():
    passes = [LAUNCH | {"time_ns": t, "share": 0.3} for t in (1e3, 3e3)]
    small = LAUNCH | {"kernel": "scan", "name": "scan", "time_ns": 100.0, "share": 0.01}
    lines = shown(profile(passes[0], small, passes[1]))
    table = [line.split() for line in lines[6:9]]
    assert table[0][:4] == ["kernel", "launches", "time", "share"]
    assert table[1][:6] == ["1", "sum<float>", "2", "4", "us", "60%"]
    assert table[2][:5] == ["2", "scan", "100", "ns", "1%"]
    assert lines[9:] == ["  1: it waits"]  # a hundredth of the time has no sentence
