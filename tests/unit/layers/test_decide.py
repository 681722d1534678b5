# SPDX-License-Identifier: Apache-2.0


import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.marked_layers import (  # noqa: E402 - skipped without torch
    AddOne,
    FailingSource,
    Same,
    kernelize_on_cpu,
)
from torch import nn  # noqa: E402

from kernforge import (  # noqa: E402
    KernelizeFallback,
    LayerRepository,
    kernelize_report,
    use_kernel_mapping,
)
from kernforge.errors import (  # noqa: E402
    IntegrityError,
    LayerError,
    NetworkError,
    NotPublishedError,
    NoVariantError,
)


def test_a_condition_is_asked_for_each_instance_each_time(mapped):
    model = nn.Sequential(Same(), Same())
    model[0].willing = False
    assert kernelize_on_cpu(model)(0) == 1
    assert kernelize_report(model).layers[0].reason == "its condition refuses this instance"
    model[1].willing = False
    assert kernelize_on_cpu(model)(0) == 0


def test_the_environment_can_switch_it_off(mapped, model, monkeypatch):
    kernelize_on_cpu(model)
    monkeypatch.setenv("DISABLE_KERNEL_MAPPING", "1")
    assert kernelize_on_cpu(model)(0) == 0
    assert {x.reason for x in kernelize_report(model).layers} == {"DISABLE_KERNEL_MAPPING is set"}
    monkeypatch.setenv("DISABLE_KERNEL_MAPPING", "yes")
    with pytest.raises(LayerError, match="'yes'"):
        kernelize_on_cpu(model)


@pytest.mark.parametrize(
    ("error", "absent"),
    [
        (NoVariantError("none"), True),
        (NotPublishedError("none"), True),
        (NetworkError("none"), True),
        (FileNotFoundError("none"), True),
        (IntegrityError("changed"), False),
        (LayerError("no such layer"), False),
    ],
)
def test_only_a_kernel_that_is_not_there_may_be_done_without(model, error, absent):
    with use_kernel_mapping({"Same": {"cpu": FailingSource(error)}}):
        with pytest.raises(type(error)):
            kernelize_on_cpu(model)
        if not absent:
            with pytest.raises(type(error)):
                kernelize_on_cpu(model, use_fallback=KernelizeFallback.ALL)
            return
        assert kernelize_on_cpu(model, use_fallback=KernelizeFallback.ALL)(0) == 0
    assert kernelize_report(model).layers[0].reason == "cannot load: none"


def test_a_registry_without_the_kernel(model, tmp_path):
    absent = LayerRepository("me/none", layer_name="X", version=1, registry=str(tmp_path))
    with use_kernel_mapping({"Same": {"cpu": absent}}):
        with pytest.raises(NotPublishedError):
            kernelize_on_cpu(model)
        kernelize_on_cpu(model, use_fallback=KernelizeFallback.ALL)
    assert "has no kernel 'me/none'" in kernelize_report(model).layers[0].reason


def test_what_is_not_mapped_may_be_an_error(mapped, model):
    with use_kernel_mapping({"Same": {"cuda": AddOne}}, inherit_mapping=False):
        with pytest.raises(
            LayerError, match="No layer mapping for `Same`: nothing is registered for cpu"
        ):
            kernelize_on_cpu(model, use_fallback=False)
        with pytest.raises(LayerError, match="NO_LAYER the layer keeps"):
            kernelize_on_cpu(model, use_fallback=KernelizeFallback.NO_DEVICE)
