# SPDX-License-Identifier: Apache-2.0
"""Who cheats is refused or timed right; who does not is never refused."""

from pathlib import Path

import pytest
import torch

from kernforge import bench
from kernforge.bench_plan import Candidate, Settings, Tensor, Workload

HERE = Path(__file__).parent
CPU = sorted(p for p in HERE.glob("*.py") if not p.name.startswith(("test_", "cuda_")))
CUDA = sorted(HERE.glob("cuda_*.py"))
HONEST = sorted((HERE / "honest").glob("*.py"))
# These compute what is wanted and reach nothing that the engine uses: their times must be right.
TIMED_RIGHT = {"exit_hook", "forges_stdout", "patched_json", "patched_sync", "patched_time"}
# The library's product takes at least this share of what an attack may claim.
LEAST_SHARE = 0.4

pytestmark = pytest.mark.torch


def workload(side):
    return Workload(
        name="product",
        inputs=(Tensor(shape=(side, 2 * side)), Tensor(shape=(2 * side, side))),
        reference=lambda a, b: a.double() @ b.double(),
        flops=4 * side**3,
    )


def measured(paths, device="cpu", side=224):
    """Rows of each candidate by name."""
    racing = [Candidate(name=p.stem, kind="kernel", file=str(p)) for p in (*HONEST, *paths)]
    settings = Settings(device=device, modes=("cold", "hot"), least=6, most=6)
    document = bench.run([workload(side)], racing, settings, lambda _text: None)
    rows = document["workloads"][0]["results"]
    return {p.stem: [row for row in rows if row["candidate"] == p.stem] for p in (*HONEST, *paths)}


@pytest.fixture(scope="module")
def on_cpu():
    with pytest.MonkeyPatch.context() as patch:
        # Threads that wait for each other measure the machine's other work.
        patch.setenv("OMP_NUM_THREADS", "1")
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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("path", CUDA, ids=lambda path: path.stem)
def test_cheats_on_the_gpu_gain_nothing(path):
    rows = measured([path], device="cuda", side=2048)
    library = {row["mode"]: row["median_ns"] for row in rows["library"]}
    for row in rows[path.stem]:
        assert row["refused"] or row["median_ns"] >= LEAST_SHARE * library[row["mode"]]
