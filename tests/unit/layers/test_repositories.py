# SPDX-License-Identifier: Apache-2.0
import itertools
import json

import pytest
from support.kernels import lock

from kernforge import LayerRepository, LocalLayerRepository
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry


def test_equal_arguments_make_equal_repositories():
    one = LayerRepository("a/b", layer_name="C", version=1, trust_remote_code=["a/b"])
    same = LayerRepository("a/b", layer_name="C", version=1, trust_remote_code=["a/b"])
    assert one == same
    assert hash(one) == hash(same)
    assert one != LayerRepository("a/b", layer_name="C", version=2)
    assert str(one) == "`a/b` (version 1), layer `C`"
    assert str(LocalLayerRepository("x", layer_name="C")) == "`x`, layer `C`"


# Which build a layer and a function come from, for models on the CPU and on the GPU, in a process
# whose torch is for CUDA and says that it sees a GPU. Nothing here touches that GPU.
WITH_A_GPU = """
import json, sys
from pathlib import Path
import torch
from torch import nn
torch.version.cuda = "13.0"
torch.cuda.is_available = lambda: True
torch.cuda.get_device_capability = lambda device=None: (9, 0)
import kernforge.compat
kernforge.compat.install()
import {package} as kernels
repo_id, local, locked = sys.argv[1:]

@kernels.use_kernel_forward_from_hub("Which")
class Which(nn.Module):
    def forward(self, x):
        return "its own"

def runs(repository, device):
    model = Which()
    with kernels.use_kernel_mapping({{"Which": {{"cpu": repository, "cuda": repository}}}}):
        kernels.kernelize(model, mode=kernels.Mode.INFERENCE, device=device)
    return model(None)

repositories = [kernels.LayerRepository(repo_id, layer_name="Layer", version=1)]
repositories += [kernels.LocalLayerRepository(Path(local), layer_name="Layer")]
repositories += [kernels.LockedLayerRepository(repo_id, layer_name="Layer", lockfile=Path(locked))]
repositories += [kernels.FuncRepository(repo_id, func_name="which", version=1)]
repositories += [kernels.LocalFuncRepository(Path(local), func_name="which")]
repositories += [kernels.LockedFuncRepository(repo_id, func_name="which", lockfile=Path(locked))]
answers = [[runs(repository, device) for repository in repositories] for device in ("cpu", "cuda")]
answers.append(kernels.get_kernel(repo_id, version=1).which(None))
print(json.dumps(answers))
"""
WHICH = """
from types import SimpleNamespace
from torch import nn
def which(x):
    return {backend!r}
class Layer(nn.Module):
    def forward(self, x):
        return {backend!r}
layers = SimpleNamespace(Layer=Layer)
"""
_numbers = itertools.count()


@pytest.mark.torch
@pytest.mark.parametrize("package", ["kernforge", "kernels"])
@pytest.mark.parametrize("built", [("cpu", "cuda"), ("cuda",)], ids=["both", "cuda alone"])
def test_a_model_on_the_cpu_loads_builds_for_the_cpu(
    tmp_path, write_variant, forked, package, built
):
    build, registry, locked = (tmp_path / name for name in ("build", "registry", "kernels.lock"))
    for backend in built:
        write_variant(
            build,
            variant=f"torch-{backend}",
            backend=backend,
            unique=f"which{next(_numbers)}",
            files={"__init__.py": WHICH.format(backend=backend)},
        )
    commit = publish(build, DirectoryRegistry(registry), "me/which").commit
    lock(locked, ("me/which", 1, commit))
    code = WITH_A_GPU.format(package=package)
    env = {"KERNFORGE_REGISTRY": registry, "XDG_DATA_HOME": tmp_path}
    done = forked("-c", code, "me/which", build, locked, **env)
    assert json.loads(done.stdout) == [[built[0]] * 6, ["cuda"] * 6, "cuda"]
