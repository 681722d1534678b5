# SPDX-License-Identifier: Apache-2.0
"""Each fact gives its finding."""

from dataclasses import replace

import pytest

from kernforge.artifact.version import Version2
from kernforge.check.finding import Problem
from kernforge.doctor.rules import (
    GB,
    Directory,
    MachineFacts,
    TorchFacts,
    diagnose,
)

CUDA_TORCH = TorchFacts(
    version="2.13.0+cu130",
    cuda=Version2(13, 0),
    archs=("sm_80", "sm_90", "compute_90"),
    gpus=(("H200", Version2(9, 0)),),
)
HEALTHY = MachineFacts(
    system="Linux",
    cpu="x86_64",
    toolkits=(("", Version2(13, 0)),),
    gpu_devices=True,
    driver=Version2(13, 0),
    torch=CUDA_TORCH,
    directories=(Directory("the store", "/s", free=100 * GB),),
)
WRONG, OTHER = Problem("it is no toolkit", "unset it"), Version2(12, 8)
BLIND = replace(CUDA_TORCH, gpus=())
FULL = Directory("the store", "/s", free=GB // 2)
CROWDED = Directory("the store", "/s", free=5 * GB)
READ_ONLY = Directory("the store", "/s", free=100 * GB, trouble="Read-only file system")


def test_a_healthy_machine_has_no_finding():
    assert diagnose(HEALTHY) == ()
    assert diagnose(replace(HEALTHY, toolkits=(("KERNFORGE_CUDA_HOME", OTHER),))) == ()


@pytest.mark.parametrize(
    ("facts", "rule", "severity"),
    [
        ({"system": "Darwin"}, "system", "error"),
        ({"glibc": Version2(2, 17)}, "glibc", "error"),
        ({"glibc": None}, "glibc", "error"),
        ({"compiler": Problem("there is no C++ compiler", "install")}, "compiler", "error"),
        ({"static_libstdcxx": False}, "static-libstdcxx", "warning"),
        ({"missing_header": "Python.h"}, "python-headers", "warning"),
        ({"driver": None}, "driver-library", "error"),
        ({"driver": Version2(12, 8)}, "driver-too-old", "error"),
        ({"torch": replace(CUDA_TORCH, cuda=Version2(13, 2))}, "driver-minor", "warning"),
        ({"torch": TorchFacts(failure="ImportError: x", places=("/a",))}, "torch-import", "error"),
        ({"torch": TorchFacts(version="2.13.0+cpu")}, "torch-without-cuda", "warning"),
        ({"torch": BLIND}, "no-visible-gpu", "error"),
        ({"torch": replace(CUDA_TORCH, archs=("sm_100",))}, "gpu-unknown-to-torch", "error"),
        ({"toolkits": (("CUDA_HOME", WRONG),)}, "cuda-home", "error"),
        ({"toolkits": (("", WRONG),)}, "cuda-home", "warning"),
        ({"toolkits": (("CUDA_HOME", OTHER),)}, "cuda-other-major", "error"),
        ({"directories": (FULL,)}, "disk", "error"),
        ({"directories": (CROWDED,)}, "disk", "warning"),
        ({"directories": (READ_ONLY,)}, "not-writable", "error"),
        ({"arch_list": "hopper"}, "arch-list", "error"),
        ({"arch_list": "8.0 8.6"}, "arch-list", "error"),
        ({"missing": ("pydantic",)}, "extra-build", "skipped"),
        ({"torch": None}, "torch-missing", "skipped"),
        ({"memory": 4 * GB}, "memory", "warning"),
        ({"memory": GB // 2}, "memory", "error"),
        ({"sandbox": Problem("refused", "allow namespaces")}, "sandbox", "warning"),
        ({"unreachable": {"https://i": "refused"}}, "index", "warning"),
    ],
)
def test_a_fact_gives_one_finding_with_a_hint(facts, rule, severity):
    (finding,) = diagnose(replace(HEALTHY, **facts))
    assert (finding.rule, finding.severity) == (rule, severity)
    assert finding.message
    assert finding.hint


@pytest.mark.parametrize(
    "arch_list", ["", "9.0", "9.0a", "8.0+PTX", "Hopper", "native", "9.0;10.0a"]
)
def test_usual_lists_of_architectures_give_no_finding(arch_list):
    assert diagnose(replace(HEALTHY, arch_list=arch_list)) == ()


def test_a_gpu_without_code_in_the_arch_list_is_named():
    torch = replace(CUDA_TORCH, gpus=(("A100", Version2(8, 0)), ("H200", Version2(9, 0))))
    found = diagnose(replace(HEALTHY, torch=torch, arch_list="9.0"))
    assert [(f.rule, f.severity, "A100" in f.message) for f in found] == [
        ("arch-list", "error", True)
    ]
    # Without a GPU it is unknown which one the list is for.
    cpu = replace(HEALTHY, torch=TorchFacts(version="2.13.0+cpu"), gpu_devices=False, driver=None)
    assert diagnose(replace(cpu, arch_list="7.5 8.0")) == ()
