# SPDX-License-Identifier: Apache-2.0
import platform
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.loader import host
from kernforge.loader.host import Host
from kernforge.loader.resolve import Step, check_driver, resolve, way_out


def torch_of(*, cuda=None, hip=None, mps=False, npu="", backends=(), attributes=(), **version):
    """What the probe reads of a torch, without one."""
    return SimpleNamespace(
        __version__="2.13.0+cu130",
        version=SimpleNamespace(cuda=cuda, hip=hip, **version),
        backends=SimpleNamespace(
            mps=SimpleNamespace(is_available=lambda: mps), **dict.fromkeys(backends)
        ),
        compiled_with_cxx11_abi=lambda: True,
        _C=SimpleNamespace(_get_privateuse1_backend_name=lambda: npu),
        **dict.fromkeys(attributes),
    )


@pytest.mark.parametrize(
    ("torch", "backend"),
    [
        (torch_of(), Backend("cpu")),
        (torch_of(cuda="13.0"), Backend("cuda", Version2(13, 0))),
        (torch_of(hip="7.2.41134-abc"), Backend("rocm", Version2(7, 2))),
        (torch_of(mps=True), Backend("metal")),
        (torch_of(xpu="20250301"), Backend("xpu", (2025, 3))),
        (torch_of(cuda="13.0", backends=["tpu"]), Backend("tpu")),
        (torch_of(cuda="13.0", attributes=["neuron"]), Backend("neuron")),
    ],
)
def test_backend_is_that_of_torch(monkeypatch, torch, backend):
    monkeypatch.setattr(host, "_torch", lambda: torch)
    probed = host.probe.__wrapped__()
    assert probed.backend == backend
    assert (probed.torch, probed.cpu) == (Version2(2, 13), platform.machine())
    assert probed.cxx11 is (True if platform.system() == "Linux" else None)
    assert host.probe.__wrapped__("cpu").backend == Backend("cpu")
    assert host.probe.__wrapped__(backend.name).backend == backend


def test_unavailable_backend_is_refused(monkeypatch):
    monkeypatch.setattr(host, "_torch", lambda: torch_of(cuda="13.0"))
    with pytest.raises(UsageError, match="Invalid backend 'rocm'") as caught:
        host.probe.__wrapped__("rocm")
    assert caught.value.hint.startswith("pass 'cpu' or 'cuda';")


def test_without_torch_the_cuda_runtime_decides(monkeypatch):
    monkeypatch.setattr(host, "_torch", lambda: None)
    monkeypatch.setattr(host, "_cudart_version", lambda: Version2(12, 8))
    probed = host.probe.__wrapped__()
    assert (probed.backend, probed.torch, probed.cxx11) == (
        Backend("cuda", Version2(12, 8)),
        None,
        None,
    )
    monkeypatch.setattr(host, "_cudart_version", lambda: None)
    assert host.probe.__wrapped__().backend == Backend("cpu")


def test_device_architecture_is_probed(monkeypatch):
    plain = Host(cpu="x86_64", os="linux", backend=Backend("cpu"))
    device = SimpleNamespace(
        is_available=lambda: True,
        get_device_capability=lambda: Version2(9, 0),
        current_device=lambda: 0,
        get_device_properties=lambda _: SimpleNamespace(gcnArchName="gfx90a:x"),
    )
    for torch, found in [
        (torch_of(cuda="13.0"), (Version2(9, 0), None)),
        (torch_of(hip="7.2"), (None, "gfx90a:x")),
    ]:
        torch.cuda = device
        monkeypatch.setattr(host, "_torch", lambda torch=torch: torch)
        probed = host.with_device(plain)
        assert (probed.capability, probed.gcn_arch) == found
    device.is_available = lambda: False
    assert host.with_device(plain) is plain


@pytest.mark.parametrize(
    ("built", "asked", "gpu", "no_gpu"),
    [
        ({"cuda": "13.0"}, None, False, True),
        ({"cuda": "13.0"}, None, True, False),
        ({"cuda": "13.0"}, "cuda", False, False),
        ({"hip": "7.2"}, None, False, True),
        ({}, None, False, False),
    ],
)
def test_missing_gpu_is_detected(monkeypatch, built, asked, gpu, no_gpu):
    torch = torch_of(**built)
    torch.cuda = SimpleNamespace(is_available=lambda: gpu)
    monkeypatch.setattr(host, "_torch", lambda: torch)
    monkeypatch.setattr(host, "probe", host.probe.__wrapped__)
    assert host.probe_to_load(asked).no_gpu is no_gpu


# -- which variant fits a host ---------------------------------------------------------------------

CUDA_HOST = Host(
    cpu="x86_64",
    os="linux",
    backend=Backend("cuda", Version2(13, 1)),
    torch=Version2(2, 12),
    cxx11=True,
)
END = "x86_64-linux"


FREE_THREADED = {"free_threaded": True, "python": Version2(3, 14)}


@pytest.mark.parametrize(
    ("name", "changes", "step", "reason"),
    [
        (f"torch-stable-abi213-cu130-{END}", {}, Step.FRAMEWORK, "needs torch 2.13 or newer"),
        (f"torch-stable-abi210-cu130-{END}", {"torch": None}, Step.FRAMEWORK, "there is no torch"),
        (f"torch211-cxx11-cu130-{END}", {}, Step.FRAMEWORK, "needs torch 2.11, torch is 2.12"),
        (f"torch212-cxx98-cu130-{END}", {}, Step.FRAMEWORK, "cxx98 ABI, torch has cxx11"),
        (f"tvm-ffi01-cu130-{END}", {}, Step.FRAMEWORK, "needs tvm-ffi 0.1, there is none"),
        (f"torch212-cu132-{END}", {}, Step.BACKEND, "needs CUDA 13.2, torch has 13.1"),
        (f"torch212-cpu-{END}", {}, Step.BACKEND, "built for cpu, kernels are wanted for cu131"),
        ("torch212-cu130-aarch64-linux", {}, Step.CPU, "built for CPU aarch64, this is x86_64"),
        ("torch212-cu130-x86_64-windows", {}, Step.OS, "built for windows, this is linux"),
        ("torch-rocm", {}, Step.BACKEND, "is for rocm, kernels are wanted for cuda"),
        (f"torch212-cu130-{END}", FREE_THREADED, Step.PYTHON, "free-threaded Python 3.14"),
        (f"torch212-metal-{END}", {"backend": Backend("metal")}, Step.BACKEND, "macOS 26.0"),
    ],
)
def test_refusal_has_a_reason(name, changes, step, reason):
    (decision,) = resolve([name], replace(CUDA_HOST, **changes)).decisions
    assert decision.step is step
    assert reason in decision.reason


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        ([], "nothing is built"),
        (
            [f"torch212-cpu-{END}"],
            f'pass backend="cpu" (a command: --backend cpu) to load torch212-cpu-{END}',
        ),
        ([f"torch211-cxx11-cu130-{END}"], "install torch 2.11, or build it for cu131"),
        ([f"torch-stable-abi213-cu130-{END}"], "install torch 2.13 or newer, or build it"),
        ([f"torch212-cu132-{END}"], "install a torch for cu132, or build it for cu131"),
        (["torch212-cu130-aarch64-linux"], "build it for cu131 on x86_64-linux"),
    ],
)
def test_advice_is_the_shortest_way(names, advice):
    assert way_out(resolve(names, CUDA_HOST), CUDA_HOST).startswith(advice)


@pytest.mark.parametrize(
    ("variant", "driver", "refused"),
    [
        ("torch-stable-abi210-cu130-x86_64-linux", Version2(12, 8), True),
        ("torch-stable-abi210-cu130-x86_64-linux", Version2(13, 0), False),
        ("torch-stable-abi210-cu132-x86_64-linux", Version2(13, 0), False),
        ("torch-stable-abi210-cu126-x86_64-linux", Version2(13, 0), False),
        ("torch-stable-abi210-cu130-x86_64-linux", None, False),
        ("torch-cuda", Version2(12, 8), True),
        ("some-folder", Version2(12, 8), False),
    ],
)
def test_old_driver_is_refused(variant, driver, refused):
    host = Host(cpu="x86_64", os="linux", backend=Backend("cuda", Version2(13, 0)), driver=driver)
    assert bool(check_driver(variant, host)) is refused


def test_without_a_gpu_cpu_builds_come_first():
    names = [f"torch-stable-abi211-cu130-{END}", f"torch-stable-abi210-cpu-{END}", "torch-cuda"]
    assert resolve(names, CUDA_HOST).best.name == names[0]
    without = resolve(names, replace(CUDA_HOST, no_gpu=True))
    assert [d.name for d in without.accepted] == [names[1], names[0], "torch-cuda"]
    # What is built for CUDA alone still loads, as on a machine that only fetches it.
    cuda_alone = resolve([names[0]], replace(CUDA_HOST, no_gpu=True))
    assert [d.name for d in cuda_alone.decisions if d.accepted] == [names[0]]
    refused = resolve(["torch-stable-abi210-cpu-aarch64-linux"], replace(CUDA_HOST, no_gpu=True))
    assert len(refused.decisions) == 1
    assert refused.best is None
