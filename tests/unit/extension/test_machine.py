# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.extension import machine
from kernforge.extension.plan import ExtensionMachine
from kernforge.system.environment import Environment
from kernforge.toolchain.lockfile import Lock


@pytest.mark.parametrize(
    ("torch", "toolkit", "runtime"),
    [
        ("13.0", Version2(13, 0), "libcudart.so.13"),
        ("13.2", Version2(13, 0), "libcudart.so.13"),
        ("12.8", Version2(12, 6), "libcudart.so.12"),
        ("13.0", Version2(13, 2), ""),  # nvcc may call what torch's runtime does not have
        ("12.8", Version2(13, 0), ""),
        ("11.8", Version2(11, 8), ""),
        (None, Version2(13, 0), ""),
        ("13.0", None, ""),
    ],
)
def test_the_runtime_is_torchs_where_it_has_what_the_toolkit_calls(torch, toolkit, runtime):
    versions = {"torch_cuda": torch and Version2.parse(torch), "cuda": toolkit}
    lock = Lock(platform="x86_64-linux")
    found = ExtensionMachine(torch=Version2(2, 13), cpu="x86_64", lock=lock, **versions)
    assert found.runtime == runtime


class Torch:
    """A torch that sees these GPUs."""

    class cuda:  # noqa: N801 - torch's name
        device_count = staticmethod(lambda: 2)
        get_device_capability = staticmethod(
            lambda number: [Version2(9, 0), Version2(8, 0)][number]
        )


@pytest.mark.parametrize(
    ("named", "archs"),
    [
        ("", "8.0 9.0"),
        ("native", "8.0 9.0"),
        ("9.0a;10.0+PTX", "9.0a 10.0+PTX"),
        ("8.7 8.0", "8.0 8.7"),
    ],
)
def test_architectures_are_named_as_torchs_loader_takes_them(named, archs):
    environment = Environment({"TORCH_CUDA_ARCH_LIST": named})
    assert " ".join(map(str, machine._archs(environment, Torch))) == archs


def test_device_code_for_other_gpus_is_refused():
    environment = Environment({"TORCH_CUDA_ARCH_LIST": "8.7"})
    with pytest.raises(UsageError, match=r"for 8\.7, and the GPU here is of 8\.0, 9\.0"):
        machine._archs(environment, Torch)


def test_a_wrong_architecture_names_the_variable_it_is_in():
    environment = Environment({"TORCH_CUDA_ARCH_LIST": "9.0;Hoper"})
    with pytest.raises(UsageError, match=r"TORCH_CUDA_ARCH_LIST is '9\.0;Hoper'") as caught:
        machine._archs(environment, Torch)
    assert "8.0;9.0+PTX" in caught.value.hint


def test_the_number_of_jobs_is_torchs_variable():
    assert machine.jobs(Environment({"MAX_JOBS": " 3 "})) == 3
    assert machine.jobs(Environment({"MAX_JOBS": ""})) >= 1
    with pytest.raises(UsageError, match="MAX_JOBS is 'many'"):
        machine.jobs(Environment({"MAX_JOBS": "many"}))
