# SPDX-License-Identifier: Apache-2.0
import platform
from types import SimpleNamespace

import pytest

from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.loader import host
from kernforge.loader.host import Host


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
