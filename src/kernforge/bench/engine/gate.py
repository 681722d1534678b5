# SPDX-License-Identifier: Apache-2.0
"""A kernel that holds the whole GPU until the host lets it go, and cleans the L2 cache meanwhile.

It stands before the first event of a timed call. As many of its blocks run as the multiprocessors
have threads for, so nothing else can begin, on no stream, before the clock does; and what is
measured is the GPU's time and not Python's, however long Python takes to queue the call. The cache
is overwritten and then filled with clean lines by the gate itself, so that no code can warm it after
that, and the call does not pay for write-backs of ours.

A call that waits for the device would wait for ever: after ``MOST_NS`` the gate opens by itself,
and what such a call takes is counted from there. Instructions: PTX ISA 6.0, for any GPU since
``sm_60``.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernforge.bench.engine.cuda_driver import Driver

MOST_NS = 5_000_000
_BLOCKS_A_MULTIPROCESSOR = 2
# First all blocks arrive: what was there before them is gone then, and nothing else can begin.
# Thread 0 of block 0 alone reads the host's memory; the other blocks read what it wrote to the
# device's, or thousands of reads over the bus would hold the flag back.
_PTX = """
.version 6.0
.target sm_60
.address_size 64

.visible .entry gate(
    .param .u64 told, .param .u64 heard, .param .u32 turn, .param .u64 most,
    .param .u64 dirt, .param .u64 dirt_end, .param .u64 clean, .param .u64 clean_end)
{
    .reg .pred %p, %q;
    .reg .u32 %block, %blocks, %thread, %threads, %turn, %seen, %a, %b, %c, %d, %sum;
    .reg .u64 %told, %heard, %most, %start, %now, %first, %at, %end, %step;

    mov.u64 %start, %globaltimer;
    ld.param.u64 %told, [told];
    ld.param.u64 %heard, [heard];
    ld.param.u32 %turn, [turn];
    ld.param.u64 %most, [most];
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %threads, %ntid.x;
    mad.lo.u32 %seen, %block, %threads, %thread;
    mul.wide.u32 %first, %seen, 16;
    mul.lo.u32 %seen, %blocks, %threads;
    mul.wide.u32 %step, %seen, 16;

    setp.ne.u32 %p, %thread, 0;
    @%p bra ARRIVED;
    mul.lo.u32 %sum, %blocks, %turn;
    atom.add.global.u32 %seen, [%heard+4], 1;
ARRIVE:
    ld.volatile.global.u32 %seen, [%heard+4];
    setp.ge.u32 %p, %seen, %sum;
    @%p bra ARRIVED;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %p, %now, %most;
    @%p bra ARRIVE;
ARRIVED:
    bar.sync 0;

    ld.param.u64 %at, [dirt];
    ld.param.u64 %end, [dirt_end];
    add.u64 %at, %at, %first;
WRITE:
    setp.ge.u64 %p, %at, %end;
    @%p bra WRITTEN;
    st.global.v4.u32 [%at], {%turn, %turn, %turn, %turn};
    add.u64 %at, %at, %step;
    bra WRITE;
WRITTEN:
    ld.param.u64 %at, [clean];
    ld.param.u64 %end, [clean_end];
    add.u64 %at, %at, %first;
    mov.u32 %sum, 0;
READ:
    setp.ge.u64 %p, %at, %end;
    @%p bra CLEAN;
    ld.volatile.global.v4.u32 {%a, %b, %c, %d}, [%at];
    add.u32 %sum, %sum, %a;
    add.u64 %at, %at, %step;
    bra READ;
CLEAN:
    setp.ne.u32 %p, %thread, 0;
    @%p bra OPEN;
    setp.ne.u32 %q, %block, 0;
WAIT:
    @%q ld.volatile.global.u32 %seen, [%heard];
    @!%q ld.volatile.global.u32 %seen, [%told];
    setp.ge.u32 %p, %seen, %turn;
    @%p bra TELL;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %p, %now, %most;
    @%p bra WAIT;
TELL:
    @!%q st.volatile.global.u32 [%heard], %turn;
OPEN:
    bar.sync 0;
    ret;
}
"""


class Gate:
    """The gate on one stream."""

    def __init__(self, driver: Driver, stream: int) -> None:
        import torch

        device = torch.cuda.get_device_properties(0)
        self._driver, self._stream = driver, stream
        self._kernel = driver.kernel(_PTX, "gate")
        self._blocks = device.multi_processor_count * _BLOCKS_A_MULTIPROCESSOR
        self._threads = device.max_threads_per_multi_processor // _BLOCKS_A_MULTIPROCESSOR
        # Kept as tensors, so that torch neither frees nor reuses them.
        self._told = torch.zeros(1, dtype=torch.int32).pin_memory()
        self._heard = torch.zeros(2, dtype=torch.int32, device="cuda")
        size = device.L2_cache_size
        self._dirt = torch.zeros(4 * size, dtype=torch.uint8, device="cuda")
        self._clean = torch.zeros(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        self._word = ctypes.c_uint32.from_address(self._told.data_ptr())
        self._turn = 0
        self._fixed = (
            ctypes.c_uint64(self._told.data_ptr()),
            ctypes.c_uint64(self._heard.data_ptr()),
        )
        dirt, clean = self._dirt.data_ptr(), self._clean.data_ptr()
        ends = (dirt, dirt + 4 * size, clean, clean + size)
        self._flushing = tuple(ctypes.c_uint64(each) for each in ends)
        self._idle = tuple(ctypes.c_uint64(0) for _ in ends)

    def close(self, *, flush: bool) -> None:
        """Queue the gate; with ``flush`` it leaves nothing of use in the L2 cache."""
        if flush:
            self._driver.reset_persisting_l2()
        self._turn += 1
        buffers = self._flushing if flush else self._idle
        values = (*self._fixed, ctypes.c_uint32(self._turn), ctypes.c_uint64(MOST_NS), *buffers)
        self._driver.launch(self._kernel, self._blocks, self._threads, self._stream, values)

    def open(self) -> None:
        """Let what is queued behind the gate begin."""
        self._word.value = self._turn
