# SPDX-License-Identifier: Apache-2.0
"""Every published kernel runs on a GPU, loaded by the hub's unmodified client and by ours.

What was built before, here or on another machine, lies in each project's ``build``.
"""

import sys
from pathlib import Path

import pytest
from support.programs import output, run

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.parent.name for path in ROOT.glob("kernels/*/build.toml"))
# Computes the workloads of its benchmark, but for large ones, and compares with their references.
USE = """
import sys
from pathlib import Path
import {client}
from kernforge.bench import project as bench
from kernforge.bench.verify import Inputs

project = Path(sys.argv[1])
kernel = {client}.get_kernel({repo!r}, version=1)
call = bench.load_file(project / "benchmarks" / "candidates.py", project).kernel
request = bench.BenchRequest(project=project, sizes=() if project.name == "img2gray" else (4096,))
small = [
    workload
    for workload in bench.workloads(request)
    if max(tensor.nbytes for tensor in workload.tensors) <= 8 << 20
]
assert small
for workload in small:
    inputs = Inputs(workload, "cuda")
    inputs.renew(1, 1)
    wrong = inputs.verify(0, call(kernel, *inputs.calls[0]))
    assert not wrong, f"{{workload.name}}: {{wrong}}"
print(kernel.__name__, kernel.__file__)
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    root = tmp_path_factory.mktemp("registry")
    for name in NAMES:
        project = ROOT / "kernels" / name
        if list(project.glob("build/*-cu*")):
            argv = [sys.executable, "-m", "kernforge", "publish", project]
            run([*argv, "--registry", root, "--repo-id", f"kernforge/{name}"])
    return root


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize("client", ["kernels", "kernforge"])
@pytest.mark.parametrize("name", NAMES)
def test_a_published_kernel_gives_its_references_results(registry, tmp_path, name, client):
    pytest.importorskip(client)
    place = registry / f"kernels--kernforge--{name}"
    if not place.is_dir():
        pytest.skip(f"kernels/{name}/build has no variant for CUDA")
    env = {"KERNFORGE_REGISTRY": registry, "KERNELS_CACHE": registry, "HF_HUB_OFFLINE": "1"}
    program = USE.format(client=client, repo=f"kernforge/{name}")
    argv = [sys.executable, "-c", program, ROOT / "kernels" / name]
    module, path = output(argv, tmp_path, HF_HOME=tmp_path, **env).split()
    assert module.startswith(f"_{name.replace('-', '_')}_cuda_")
    assert Path(path).is_relative_to(registry)
