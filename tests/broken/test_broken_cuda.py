# SPDX-License-Identifier: Apache-2.0
"""Each fault of a CUDA kernel is caught by the check made for it; the honest one passes all.

Each operator has a process of its own, since some faults cost it the GPU.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
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


def run(*words, home=None, **more):
    env = {**os.environ, "PYTHONPATH": f"{SRC}:{HERE}:{os.environ.get('PYTHONPATH', '')}", **more}
    env.pop("KERNFORGE_KERNEL_DIR", None)
    if home:
        env["KERNFORGE_HOME"] = str(home)
    return subprocess.run(
        [sys.executable, *map(str, words)], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.native
def test_the_kernels_compile_where_there_is_no_gpu(kept_home):
    text = "import cuda_kernels as c; print(len(c.NAMES), c.load().default)"
    done = run("-c", text, home=kept_home, TORCH_CUDA_ARCH_LIST="9.0")
    assert done.stdout.split() == ["19", "broken_cuda.twice.default"], done.stderr


def check(name, tool, place):
    """Failed and passed checks of one operator, and the output of the tests; or of a tool."""
    words = ["-m", "pytest", "-p", "kernforge.testing.plugin", "-q", "-rs", "--tb=short"]
    words += ["-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, "--rootdir", HERE]
    words += ["-k", "sanitizer", "--sanitizer", tool] if tool else ["-k", "not sanitizer"]
    done = run(*words, f"{HERE}/declared_cuda.py::Test{name}", KERNFORGE_TEST_COUNTS=str(place))
    failed, passed = set(), set()
    for row in json.loads(place.read_text()) if place.exists() else ():
        test = row["test"].rpartition("::")[2].removeprefix("test_").partition("[")[0]
        {"passed": passed, "skipped": set()}.get(row["outcome"], failed).add(tool or test)
    return failed, passed, done.stdout[-6000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    folder = tmp_path_factory.mktemp("broken")
    compiled = run("-c", "import cuda_kernels as c; c.load()")
    assert not compiled.returncode, compiled.stderr
    # The honest one first, and its slow tools: the others fill the time.
    tools = {n: [t for t in TOOLS if n == "Honest" or t in CAUGHT_BY[n][0]] for n in CAUGHT_BY}
    tasks = [(name, tool) for name, some in tools.items() for tool in ("", *some)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(pool.map(lambda t: check(*t, folder / f"{t[0]}{t[1]}.json"), tasks))
    found = {name: (set(), set(), "") for name in CAUGHT_BY}
    for (name, _), (failed, passed, output) in zip(tasks, told, strict=True):
        before = found[name]
        found[name] = (before[0] | failed, before[1] | passed, before[2] + output)
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_fault_is_caught_by_the_check_made_for_it(outcomes, name):
    failed, _, output = outcomes[name]
    must, may = CAUGHT_BY[name]
    for reason in (
        "needs 2 GPUs",
        "does not support this machine's GPU",
        "was not found: install the",
    ):
        if must - failed and reason in output:
            pytest.skip(reason)
    assert must <= failed <= must | may, output


@pytest.mark.gpu
def test_the_honest_operator_passes_every_check(outcomes):
    _, passed, output = outcomes["Honest"]
    wanted = {"values", "special_values", "views", "sentinels", "neighbours", "inputs_untouched"}
    wanted |= {"determinism", "opcheck", "compile", "gradients", "cuda_graph", "side_stream"}
    wanted |= {"compiled_gradients"}
    assert wanted <= passed, output
