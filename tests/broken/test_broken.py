# SPDX-License-Identifier: Apache-2.0
"""Each fault is caught by the check made for it and by no other; the honest operator passes all."""

import json
import os
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import programs

torch = pytest.importorskip("torch")
from broken.operators import FAULTS  # noqa: E402 - skipped without torch

pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"


def run(*words, home=None, **more):
    more |= {"PYTHONPATH": f"{SRC}:{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    more |= {"OMP_NUM_THREADS": "1"} | ({"KERNFORGE_HOME": home} if home else {})
    env = {name: value for name, value in os.environ.items() if name != "KERNFORGE_KERNEL_DIR"}
    return programs.run((sys.executable, *words), env=env, expect=None, **more)


def check(place, tests, *options):
    """Failed and passed checks by operator, and the output of the tests."""
    words = ["-m", "pytest", "-p", "kernforge.testing.plugin", "-q", "-rs", "--tb=short"]
    words += ["-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, "--rootdir", HERE]
    done = run(*words, *options, HERE / tests, KERNFORGE_TEST_COUNTS=str(place))
    failed, passed = defaultdict(set), defaultdict(set)
    for row in json.loads(place.read_text()) if place.exists() else ():
        _, owner, name = row["test"].split("::")
        bare = name if name.startswith("test_opcheck") else name.partition("[")[0]
        into = {"passed": passed, "skipped": defaultdict(set)}.get(row["outcome"], failed)
        into[owner.removeprefix("Test")].add(bare.removeprefix("test_"))
    return failed, passed, done.stdout[-6000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    failed, _, output = check(tmp_path_factory.mktemp("broken") / "outcomes.json", "operators.py")
    assert failed, output
    return failed


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught_by_the_check_made_for_it(on_cpu, name):
    # Behind an argument of any check may lie, by chance, what that check lays there.
    by_chance = on_cpu[name] if name == "ReadBehind" else set()
    assert on_cpu[name] == FAULTS[name][1] | by_chance


# -- on a GPU --------------------------------------------------------------------------------

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
AT_ONCE = 8
# What must fail, and what else may: a race can change each run, atomics drop subnormals, and a
# wrong stream is as wrong on a second device.
CAUGHT_BY = {
    "Honest": (set(), set()),
    "WriteBehind": ({"sentinels", "memcheck"}, set()),
    "ReadBehind": ({"neighbours", "memcheck"}, set()),
    "WrongTail": ({"values"}, set()),
    "MissingSync": ({"values", "racecheck"}, {"determinism", "second_device"}),
    "MissingWarpSync": ({"racecheck"}, set()),
    "DivergentBarrier": ({"synccheck"}, set()),
    "Uninitialised": ({"initcheck"}, set()),
    "FloatAtomics": ({"determinism"}, {"special_values"}),
    "SwallowedNan": ({"special_values"}, set()),
    "MisalignedVectors": ({"views"}, set()),
    "IndexOf32Bits": ({"more_than_2_to_the_31_elements"}, set()),
    "DefaultStream": ({"side_stream", "cuda_graph"}, set()),
    "OwnStream": ({"side_stream", "cuda_graph"}, {"second_device"}),
    "OwnStreamNotJoined": ({"side_stream", "cuda_graph"}, {"second_device"}),
    "SyncInside": ({"cuda_graph"}, set()),
    "MallocInside": ({"cuda_graph"}, set()),
    "IgnoredStride": ({"views"}, set()),
    "NoDeviceGuard": ({"second_device"}, set()),
}
NOT_HERE = ("needs 2 GPUs", "does not support this machine's GPU", "was not found: install the")


@pytest.mark.native
def test_the_kernels_compile_where_there_is_no_gpu(kept_home):
    text = "import operators_cuda as c; print(len(c.NAMES), c.load().default)"
    done = run("-c", text, home=kept_home, TORCH_CUDA_ARCH_LIST="9.0")
    assert done.stdout.split() == ["19", "broken_cuda.twice.default"], done.stderr


def check_cuda(name, tool, place):
    """An operator has a process of its own, since some faults cost it the GPU; so has a tool."""
    words = ["sanitizer", "--sanitizer", tool] if tool else ["not sanitizer"]
    failed, passed, output = check(place, f"operators_cuda.py::Test{name}", "-k", *words)
    return ({tool} if tool and failed[name] else failed[name]), passed[name], output


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory):
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    folder = tmp_path_factory.mktemp("broken")
    compiled = run("-c", "import operators_cuda")
    assert not compiled.returncode, compiled.stderr
    # The honest one first, and its slow tools: the others fill the time.
    tools = {n: [t for t in TOOLS if n == "Honest" or t in CAUGHT_BY[n][0]] for n in CAUGHT_BY}
    tasks = [(name, tool) for name, some in tools.items() for tool in ("", *some)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(pool.map(lambda t: check_cuda(*t, folder / f"{t[0]}{t[1]}.json"), tasks))
    found = {name: (set(), set(), "") for name in CAUGHT_BY}
    for (name, _), (failed, passed, output) in zip(tasks, told, strict=True):
        before = found[name]
        found[name] = (before[0] | failed, before[1] | passed, before[2] + output)
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_cuda_fault_is_caught_by_the_check_made_for_it(on_gpu, name):
    failed, _, output = on_gpu[name]
    must, may = CAUGHT_BY[name]
    for reason in NOT_HERE:
        if must - failed and reason in output:
            pytest.skip(reason)
    assert must <= failed <= must | may, output


@pytest.mark.gpu
def test_the_honest_cuda_operator_passes_every_check(on_gpu):
    _, passed, output = on_gpu["Honest"]
    wanted = {"values", "special_values", "views", "sentinels", "neighbours", "inputs_untouched"}
    wanted |= {"determinism", "compile", "gradients", "cuda_graph", "side_stream"}
    wanted |= {"compiled_gradients"}
    assert wanted <= passed, output
    assert any(name.startswith("opcheck") for name in passed), output
