# SPDX-License-Identifier: Apache-2.0
"""The counters that are asked of Nsight Compute, in one table, and what each is.

Names and meanings: NVIDIA, Nsight Compute 2025.3, Profiling Guide, "Metrics Structure", "Metrics
Reference" and "Statistical Sampler / Warp Stall Reasons" (docs.nvidia.com/nsight-compute), and the list that
``ncu --query-metrics --chips gh100`` prints. ``pct_of_peak_sustained_active`` counts cycles in which
a unit had work, ``pct_of_peak_sustained_elapsed`` all cycles.
"""

from __future__ import annotations

_ACTIVE, _ELAPSED = "avg.pct_of_peak_sustained_active", "avg.pct_of_peak_sustained_elapsed"

COUNTERS = {
    "time_ns": "gpu__time_duration.sum",
    "registers": "launch__registers_per_thread",
    "shared_static": "launch__shared_mem_per_block_static",
    "shared_dynamic": "launch__shared_mem_per_block_dynamic",
    "cluster": "launch__cluster_size",
    "waves": "launch__waves_per_multiprocessor",
    "limit_blocks": "launch__occupancy_limit_blocks",
    "limit_registers": "launch__occupancy_limit_registers",
    "limit_shared": "launch__occupancy_limit_shared_mem",
    "limit_warps": "launch__occupancy_limit_warps",
    "limit_barriers": "launch__occupancy_limit_barriers",
    "warps_possible": "sm__maximum_warps_per_active_cycle_pct",
    "warps_active": f"sm__warps_active.{_ACTIVE}",
    "busy": f"sm__cycles_active.{_ELAPSED}",
    "sm_hz": "sm__cycles_elapsed.avg.per_second",
    "dram_read": "dram__bytes_read.sum",
    "dram_written": "dram__bytes_write.sum",
    "dram": f"dram__throughput.{_ELAPSED}",
    "l2": f"lts__throughput.{_ELAPSED}",
    "l2_hits": "lts__t_sector_hit_rate.pct",
    "l1": f"l1tex__throughput.{_ACTIVE}",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "shared_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "tensor": f"sm__pipe_tensor_cycles_active.{_ACTIVE}",
    "fma": f"sm__inst_executed_pipe_fma.{_ACTIVE}",
    "alu": f"sm__inst_executed_pipe_alu.{_ACTIVE}",
    "fp64": f"sm__inst_executed_pipe_fp64.{_ACTIVE}",
    "special": f"sm__inst_executed_pipe_xu.{_ACTIVE}",
    "issue": f"smsp__issue_active.{_ACTIVE}",
    "cycles": "smsp__average_warp_latency_per_inst_issued.ratio",
    "local_read": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "local_written": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
}
"""Metrics by the names that they have here."""

LIMITS = {
    "limit_blocks": "blocks",
    "limit_registers": "registers",
    "limit_shared": "shared memory",
    "limit_warps": "warps",
    "limit_barriers": "barriers",
}
"""What the smallest of these numbers of resident blocks is called, as in ``kernforge resources``."""

STALLS = {
    "barrier": "a barrier of the block",
    "branch_resolving": "the target of a branch",
    "dispatch_stall": "the dispatcher",
    "drain": "stores at the end of the kernel",
    "gmma": "the tensor cores (wgmma)",
    "imc_miss": "constants that are not in the cache",
    "lg_throttle": "the full queue of global and local memory",
    "long_scoreboard": "data of global or local memory",
    "math_pipe_throttle": "an arithmetic pipe that is busy",
    "membar": "a memory fence",
    "mio_throttle": "the full queue of shared memory and special functions",
    "misc": "something else",
    "no_instruction": "the next instruction to be fetched",
    "short_scoreboard": "data of shared memory or a special function",
    "sleeping": "the end of nanosleep",
    "tex_throttle": "the full queue of textures",
    "wait": "the fixed latency of the instruction before",
}
"""Reasons for which a warp is not issued, with what it waits for.

Not here: ``selected``, the cycle in which it is issued, and ``not_selected``, in which another warp is.
"""


def stall_metric(reason: str) -> str:
    """The metric of a reason: cycles that a warp waits for it, for each instruction issued."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


def metrics() -> tuple[str, ...]:
    """Every metric that is asked for."""
    return (*COUNTERS.values(), *map(stall_metric, STALLS))
