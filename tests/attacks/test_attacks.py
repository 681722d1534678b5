# SPDX-License-Identifier: Apache-2.0
"""Who cheats is refused or timed right; who does not is never refused."""

from pathlib import Path

import pytest
import torch

from kernforge.bench import api as bench
from kernforge.bench.engine import workload as engine_workload
from kernforge.bench.engine.workload import Candidate, Settings, Tensor, Workload

HERE = Path(__file__).parent
CPU = sorted(p for p in HERE.glob("*.py") if not p.name.startswith(("test_", "conftest", "cuda")))
CUDA = sorted([*HERE.glob("cuda_*.py"), HERE / "computes_ahead.py", HERE / "one_call_for_all.py"])
MEMORY = sorted(HERE.glob("cudamem_*.py"))
HONEST = sorted((HERE / "honest").glob("*.py"))
SUMS = sorted((HERE / "honest_sums").glob("*.py"))
# These compute what is wanted and reach nothing that the engine uses: their times must be right.
TIMED_RIGHT = {"exit_hook", "forges_stdout", "patched_json", "patched_sync", "patched_time"}
# The library's product takes at least this share of what an attack may claim.
LEAST_SHARE = 0.4
LEAST_SHARE_OF_MEMORY = 0.85

pytestmark = pytest.mark.torch


def workload(side):
    return Workload(
        name="product",
        inputs=(Tensor(shape=(side, 2 * side)), Tensor(shape=(2 * side, side))),
        reference=lambda a, b: a.double() @ b.double(),
        flops=4 * side**3,
    )


def measured(paths, *, honest=HONEST, work=None, device="cpu"):
    """Rows of each candidate by name."""
    paths = (*honest, *paths)
    racing = [Candidate(name=p.stem, kind="kernel", file=str(p)) for p in paths]
    modes = engine_workload.modes_of(device)
    settings = Settings(device=device, modes=modes, least=6, most=6)
    document = bench.run([work or workload(160)], racing, settings, print)
    rows = document["workloads"][0]["results"]
    return {p.stem: [row for row in rows if row["candidate"] == p.stem] for p in paths}


@pytest.fixture(scope="module")
def on_cpu(fork_server):
    with pytest.MonkeyPatch.context() as patch:
        # Threads that wait for each other measure the machine's other work.
        patch.setenv("OMP_NUM_THREADS", "1")
        fork_server.fork_workers(patch)
        return measured(CPU)


def test_there_are_enough_attacks():
    assert len(CPU) + len(CUDA) >= 20
    assert len(HONEST) >= 5
    assert {path.stem for path in CPU} >= TIMED_RIGHT


@pytest.mark.parametrize("name", [path.stem for path in HONEST])
def test_the_honest_are_never_refused(on_cpu, name):
    assert [row["refused"] for row in on_cpu[name]] == ["", ""]
    assert all(row["checked"] > 0 for row in on_cpu[name])


@pytest.mark.parametrize("name", [path.stem for path in CPU if path.stem not in TIMED_RIGHT])
def test_cheats_are_refused(on_cpu, name):
    assert all(row["refused"] for row in on_cpu[name]), on_cpu[name]


@pytest.mark.parametrize("name", sorted(TIMED_RIGHT))
def test_what_cheats_in_vain_is_timed_right(on_cpu, name):
    (library,) = (row for row in on_cpu["library"] if row["mode"] == "hot")
    (row,) = (row for row in on_cpu[name] if row["mode"] == "hot")
    assert not row["refused"]
    assert row["median_ns"] >= LEAST_SHARE * library["median_ns"]


def total(size):
    """A workload of nothing but memory, whose inputs fit into the L2 cache of a large GPU."""
    return Workload(
        name="sum",
        inputs=(Tensor(shape=(size,)), Tensor(shape=(size,))),
        reference=lambda a, b: a.double() + b.double(),
    )


@pytest.fixture(scope="module")
def on_cuda():
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    return {
        **measured(CUDA, work=workload(1024), device="cuda"),
        **measured(MEMORY, honest=SUMS, work=total(3 << 20), device="cuda"),
    }


@pytest.mark.gpu
@pytest.mark.parametrize("name", [path.stem for path in (*HONEST, *SUMS)])
def test_the_honest_are_never_refused_on_the_gpu(on_cuda, name):
    assert [row["refused"] for row in on_cuda[name]] == [""] * len(engine_workload.modes_of("cuda"))
    assert all(row["checked"] > 0 for row in on_cuda[name])


@pytest.mark.gpu
@pytest.mark.parametrize("name", [path.stem for path in CUDA])
def test_cheats_on_the_gpu_gain_nothing(on_cuda, name):
    assert_nothing_gained(on_cuda[name], on_cuda["library"], LEAST_SHARE)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [path.stem for path in MEMORY])
def test_warm_caches_on_the_gpu_gain_nothing(on_cuda, name):
    assert_nothing_gained(on_cuda[name], on_cuda["plain_sum"], LEAST_SHARE_OF_MEMORY)


def assert_nothing_gained(rows, library, share):
    honest = {row["mode"]: row for row in library}
    for row in rows:
        if not row["refused"] and not row["skipped"]:
            assert row["median_ns"] >= share * honest[row["mode"]]["median_ns"]
