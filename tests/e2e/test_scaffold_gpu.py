# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge new`` writes, built for CUDA where the GPU is and tested there.

The toolkit is the machine's own. The lock is that of a kernel which needs the same headers, so no
package index is asked where the store has them.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from support.programs import output

from kernforge.toolchain.installed import find_cuda

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.native,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here"),
]

LOCK = Path(__file__).parents[2] / "kernels" / "relu-scale" / "kernforge.lock"


@pytest.mark.parametrize("layout", ["full", "gradient", "minimal"])
def test_the_scaffold_is_built_by_the_toolkit_here_and_passes_on_the_gpu(
    tmp_path, kept_home, layout
):
    toolkit = find_cuda(os.environ)
    if toolkit is None:
        pytest.skip("no CUDA toolkit here")

    def call(*words):
        home = {"KERNFORGE_HOME": kept_home, "KERNFORGE_CUDA_HOME": toolkit}
        return output((sys.executable, "-m", "kernforge", *words), tmp_path, **home)

    call("new", "my-kernel", *([] if layout == "full" else [f"--{layout}"]))
    shutil.copy(LOCK, tmp_path / "my-kernel")
    arch = "{}.{}".format(*torch.cuda.get_device_capability())
    chosen = ("--variant", f"torch-stable-abi*-cu{torch.version.cuda.replace('.', '')}-*")
    call("build", "my-kernel", "--arch", arch, *chosen)
    tested = ("--build-dir", "my-kernel/build", "--pytest=-m", "--pytest=gpu", "--json")
    out = call("test", "my-kernel", *tested, *chosen)
    (told,) = json.loads(out)["variants"]
    assert told["counts"]["passed"] >= 20
    assert told["counts"]["failed"] + told["counts"]["error"] == 0
    ran = {one["test"].rpartition("::")[2] for one in told["tests"] if one["outcome"] == "passed"}
    assert {"test_cuda_graph[cuda]", "test_side_stream[cuda]", "test_compile[cuda]"} <= ran
    assert ("test_the_gradient_at_special_values[cuda]" in ran) is (layout == "gradient")
