# SPDX-License-Identifier: Apache-2.0
"""Layers of a model that kernels replace: marks, mappings, decisions, reports."""

import contextlib
import copy
import functools
import pickle
import threading

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from kernforge import (  # noqa: E402
    KernelizeFallback,
    Mode,
    kernelize,
    kernelize_report,
    kernelized,
    register_kernel_mapping,
    unkernelize,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
    use_kernelized_func,
)
from kernforge.errors import (  # noqa: E402
    IntegrityError,
    LayerError,
    LayerTypeError,
    NetworkError,
    NotPublishedError,
    NoVariantError,
)


class AddOneLayer(nn.Module):
    def forward(self, x):
        return x + 1


class AddOne:
    @staticmethod
    def load():
        return AddOneLayer


class FailingSource:
    def __init__(self, error):
        self.error = error

    def load(self):
        raise self.error


@use_kernel_forward_from_hub("Same", condition=lambda module: module.willing)
class Same(nn.Module):
    willing = True

    def forward(self, x):
        return x


@use_kernel_forward_from_hub("Other")
class Other(nn.Module):
    def forward(self, x):
        return x


@use_kernel_forward_from_hub("same_function")
def same_function(x):
    """Return the argument."""
    return x


@use_kernelized_func(same_function)
class Caller(nn.Module):
    def forward(self, x):
        return same_function(x)


def kernelize_on_cpu(network, **how):
    return kernelize(network, mode=Mode.INFERENCE, device="cpu", **how)


def attributes_of(network):
    return [dict(module.__dict__) for module in network.modules()]


@pytest.fixture
def mapped():
    """A mapping of one kernel to every marked layer."""
    layers = {name: {"cpu": AddOne} for name in ("Same", "Other", "same_function")}
    with use_kernel_mapping(layers, inherit_mapping=False):
        yield


@pytest.fixture
def model():
    return nn.Sequential(Same(), Other())


def test_kernelize_twice_and_undo_leaves_nothing(mapped, model):
    before = attributes_of(model)
    assert kernelize_on_cpu(kernelize_on_cpu(model))(0) == 2
    unkernelize(unkernelize(model))
    assert model(0) == 0
    assert attributes_of(model) == before


def test_an_instances_own_forward_is_restored(mapped, model):
    hook = model[0].forward = functools.partial(max, 7)
    assert kernelize_on_cpu(kernelize_on_cpu(model))(0) == 2
    twin = copy.deepcopy(model)
    unkernelize(model)
    assert model[0].forward is hook
    assert (model(0), twin(0), unkernelize(twin)(0)) == (7, 2, 7)


@pytest.mark.parametrize(
    "wrong",
    [
        FailingSource(NoVariantError("none")),
        FailingSource(ZeroDivisionError()),
        FailingSource(IntegrityError("x")),
    ],
)
def test_an_error_leaves_the_model_unchanged(mapped, model, wrong):
    kernelize_on_cpu(model)
    before = attributes_of(model)
    with use_kernel_mapping({"Other": {"cpu": wrong}}):
        with pytest.raises(type(wrong.error)):
            kernelize_on_cpu(model)
        with pytest.raises(type(wrong.error)), kernelized(model, mode=Mode.INFERENCE, device="cpu"):
            pytest.fail("the block was entered")
    assert attributes_of(model) == before


def test_a_block_restores_the_forwards_before_it(mapped, model):
    with contextlib.suppress(KeyError), kernelized(model, mode=Mode.INFERENCE, device="cpu"):
        assert model(0) == 2
        raise KeyError
    assert model(0) == 0
    kernelize_on_cpu(model)
    before = attributes_of(model)
    with (
        use_kernel_mapping({}, inherit_mapping=False),
        kernelized(model, mode=Mode.INFERENCE, device="cpu"),
    ):
        assert model(0) == 0
    assert attributes_of(model) == before


def test_a_hook_over_a_kernel_is_not_removed(mapped, model):
    kernelize_on_cpu(model)
    inner = model[1].forward
    model[1].forward = lambda x: 10 * inner(x)
    assert kernelize_report(model).layers[1].reason == "other code replaced its forward"
    with pytest.raises(LayerError, match="the forward of 1 was replaced by other code"):
        unkernelize(model)
    assert model(0) == 20
    # Kernelizing takes it for the module's own.
    assert unkernelize(kernelize_on_cpu(model))(0) == 10 * 1


def test_unmapped_names_are_logged_once(model, caplog):
    with use_kernel_mapping({}, inherit_mapping=False):
        kernelize_on_cpu(nn.Sequential(model, Same()))
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "no kernel mapping names Other, Same"
    ]


def test_a_device_without_kernels_is_logged(mapped, caplog):
    model = nn.Sequential(nn.Linear(1, 1, device="meta"), Other())
    assert kernelize(model, mode=Mode.INFERENCE)[1](0) == 0
    (record,) = caplog.records
    assert record.getMessage().startswith("the device is meta, which has no kernels")
    assert kernelize_on_cpu(model)[1](0) == 1


def test_a_condition_holds_for_each_instance(mapped):
    model = nn.Sequential(Same(), Same())
    model[0].willing = False
    assert kernelize_on_cpu(model)(0) == 1
    assert kernelize_report(model).layers[0].reason == "its condition refuses this instance"
    model[1].willing = False
    assert kernelize_on_cpu(model)(0) == 0


def test_the_environment_disables_kernels(mapped, model, monkeypatch):
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
def test_only_an_unavailable_kernel_falls_back(model, error, absent):
    with use_kernel_mapping({"Same": {"cpu": FailingSource(error)}}):
        with pytest.raises(type(error)):
            kernelize_on_cpu(model)
        if not absent:
            with pytest.raises(type(error)):
                kernelize_on_cpu(model, use_fallback=KernelizeFallback.ALL)
            return
        assert kernelize_on_cpu(model, use_fallback=KernelizeFallback.ALL)(0) == 0
    assert kernelize_report(model).layers[0].reason == "cannot load: none"


def test_signatures_are_compared_for_every_class(mapped):
    @use_kernel_forward_from_hub("Other")
    class Two(nn.Module):
        def forward(self, x, y):
            return x

    with pytest.raises(LayerTypeError, match=r"`Two`: different number of arguments"):
        kernelize_on_cpu(nn.Sequential(Other(), Two()))


def test_a_function_is_replaced_and_copied_as_itself(mapped):
    model = Caller()
    assert (same_function.__name__, same_function.__doc__) == (
        "same_function",
        "Return the argument.",
    )
    assert kernelize_on_cpu(model)(0) == 1
    assert copy.deepcopy(same_function) is same_function
    assert pickle.loads(pickle.dumps(same_function)) is same_function  # noqa: S301 - ours
    (layer,) = kernelize_report(nn.Sequential(model, Caller())).layers
    assert (layer.path, layer.layer_name) == ("0.same_function", "same_function")
    assert unkernelize(model)(0) == 0


def forward_in_a_thread(network):
    results = []
    thread = threading.Thread(target=lambda: results.append(kernelize_on_cpu(network)(0)))
    thread.start()
    thread.join()
    return results[0]


def test_a_scoped_mapping_ends_with_its_block_and_thread(mapped, model):
    with contextlib.suppress(KeyError), use_kernel_mapping({}, inherit_mapping=False):
        assert kernelize_on_cpu(model)(0) == 0
        register_kernel_mapping({"Same": {"cpu": AddOne}})
        assert kernelize_on_cpu(model)(0) == 1
        raise KeyError
    assert kernelize_on_cpu(model)(0) == 2
    assert forward_in_a_thread(model) == 0


def test_a_registered_mapping_holds_in_every_thread():
    try:
        register_kernel_mapping({"Same": {"cpu": AddOne}}, inherit_mapping=False)
        assert forward_in_a_thread(Same()) == 1
    finally:
        register_kernel_mapping({}, inherit_mapping=False)


def test_the_report_is_a_table(mapped, model):
    assert "not kernelized" in str(kernelize_report(model))
    kernelize_on_cpu(model)
    report = kernelize_report(nn.ModuleList([Same(), Same(), nn.ReLU(), model]))
    assert str(report).splitlines() == [
        "module  layer  runs         because",
        "* (2)   Same   own forward  not kernelized",
        "3.0     Same   kernel       registered for cpu FALLBACK",
        "3.1     Other  kernel       registered for cpu FALLBACK",
        "2 of 4 layers run a kernel",
    ]
    assert len(report.replaced) == len(report.kept) == 2
    assert "no layer of this model is marked" in str(kernelize_report(nn.ReLU()))
