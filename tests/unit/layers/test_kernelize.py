# SPDX-License-Identifier: Apache-2.0
"""What kernelize does to a model, with layers at hand; tests/native has a kernel that was built."""

import contextlib
import copy
import functools
import pickle
import threading

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - skipped without torch

from kernforge import (  # noqa: E402
    KernelizeFallback,
    LayerRepository,
    LocalLayerRepository,
    Mode,
    kernelize,
    kernelize_report,
    kernelized,
    register_kernel_mapping,
    replace_kernel_forward_from_hub,
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


class Missing:
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
    """Give back what came."""
    return x


@use_kernelized_func(same_function)
class Caller(nn.Module):
    def forward(self, x):
        return same_function(x)


@pytest.fixture
def mapped():
    with use_kernel_mapping(
        {name: {"cpu": AddOne} for name in ("Same", "Other", "same_function")},
        inherit_mapping=False,
    ):
        yield


@pytest.fixture
def model():
    return nn.Sequential(Same(), Other())


def run(network, **how):
    return kernelize(network, mode=Mode.INFERENCE, device="cpu", **how)


def entries(network):
    return [dict(module.__dict__) for module in network.modules()]


def test_kernelizing_twice_and_back_leaves_nothing(mapped, model):
    before = entries(model)
    assert run(run(model))(0) == 2
    unkernelize(unkernelize(model))
    assert model(0) == 0
    assert entries(model) == before


def test_a_forward_of_the_instance_itself_comes_back(mapped, model):
    hook = model[0].forward = functools.partial(max, 7)
    assert run(run(model))(0) == 2
    twin = copy.deepcopy(model)
    unkernelize(model)
    assert model[0].forward is hook
    assert (model(0), twin(0), unkernelize(twin)(0)) == (7, 2, 7)


@pytest.mark.parametrize(
    "wrong",
    [Missing(NoVariantError("none")), Missing(ZeroDivisionError()), Missing(IntegrityError("x"))],
)
def test_an_error_leaves_the_model_as_it_was(mapped, model, wrong):
    run(model)
    before = entries(model)
    with use_kernel_mapping({"Other": {"cpu": wrong}}):
        with pytest.raises(type(wrong.error)):
            run(model)
        with pytest.raises(type(wrong.error)), kernelized(model, mode=Mode.INFERENCE, device="cpu"):
            pytest.fail("the block was entered")
    assert entries(model) == before


def test_a_block_gives_back_what_was_there(mapped, model):
    with contextlib.suppress(KeyError), kernelized(model, mode=Mode.INFERENCE, device="cpu"):
        assert model(0) == 2
        raise KeyError
    assert model(0) == 0
    run(model)
    before = entries(model)
    with (
        use_kernel_mapping({}, inherit_mapping=False),
        kernelized(model, mode=Mode.INFERENCE, device="cpu"),
    ):
        assert model(0) == 0
    assert entries(model) == before


def test_a_forward_that_was_put_over_a_kernel_is_not_thrown_away(mapped, model):
    run(model)
    inner = model[1].forward
    model[1].forward = lambda x: 10 * inner(x)
    assert kernelize_report(model).layers[1].reason == "another forward was put over it"
    with pytest.raises(LayerError, match="the forward of 1 was exchanged again"):
        unkernelize(model)
    assert model(0) == 20
    # Kernelizing takes it for the module's own.
    assert unkernelize(run(model))(0) == 10 * 1


def test_a_condition_is_asked_for_each_instance_each_time(mapped):
    model = nn.Sequential(Same(), Same())
    model[0].willing = False
    assert run(model)(0) == 1
    assert kernelize_report(model).layers[0].reason == "its condition refuses this instance"
    model[1].willing = False
    assert run(model)(0) == 0


def test_the_environment_can_switch_it_off(mapped, model, monkeypatch):
    run(model)
    monkeypatch.setenv("DISABLE_KERNEL_MAPPING", "1")
    assert run(model)(0) == 0
    assert {x.reason for x in kernelize_report(model).layers} == {"DISABLE_KERNEL_MAPPING is set"}
    monkeypatch.setenv("DISABLE_KERNEL_MAPPING", "yes")
    with pytest.raises(LayerError, match="'yes'"):
        run(model)


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
    with use_kernel_mapping({"Same": {"cpu": Missing(error)}}):
        with pytest.raises(type(error)):
            run(model)
        if not absent:
            with pytest.raises(type(error)):
                run(model, use_fallback=KernelizeFallback.ALL)
            return
        assert run(model, use_fallback=KernelizeFallback.ALL)(0) == 0
    assert kernelize_report(model).layers[0].reason == "cannot load: none"


def test_a_registry_without_the_kernel(model, tmp_path):
    absent = LayerRepository("me/none", layer_name="X", version=1, registry=str(tmp_path))
    with use_kernel_mapping({"Same": {"cpu": absent}}):
        with pytest.raises(NotPublishedError):
            run(model)
        run(model, use_fallback=KernelizeFallback.ALL)
    assert "has no kernel 'me/none'" in kernelize_report(model).layers[0].reason


def test_what_is_not_mapped_may_be_an_error(mapped, model):
    with use_kernel_mapping({"Same": {"cuda": AddOne}}, inherit_mapping=False):
        with pytest.raises(LayerError, match="No kernel for `Same`: nothing is registered for cpu"):
            run(model, use_fallback=False)
        with pytest.raises(LayerError, match="NO_LAYER would let"):
            run(model, use_fallback=KernelizeFallback.NO_DEVICE)


def test_names_that_nobody_mapped_are_said_once(model, caplog):
    with use_kernel_mapping({}, inherit_mapping=False):
        run(nn.Sequential(model, Same()))
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "no kernel mapping names Other, Same"
    ]


def test_a_loaded_layer_is_held_against_every_class_that_it_replaces(mapped):
    @use_kernel_forward_from_hub("Other")
    class Two(nn.Module):
        def forward(self, x, y):
            return x

    with pytest.raises(LayerTypeError, match=r"`Two`: different number of arguments"):
        run(nn.Sequential(Other(), Two()))


def test_a_function_is_replaced_for_its_callers_and_copied_as_itself(mapped):
    model = Caller()
    assert (same_function.__name__, same_function.__doc__) == (
        "same_function",
        "Give back what came.",
    )
    assert run(model)(0) == 1
    assert copy.deepcopy(same_function) is same_function
    assert pickle.loads(pickle.dumps(same_function)) is same_function  # noqa: S301 - ours
    (layer,) = kernelize_report(nn.Sequential(model, Caller())).layers
    assert (layer.path, layer.layer_name) == ("0.same_function", "same_function")
    assert unkernelize(model)(0) == 0


def test_a_class_of_others_can_be_marked(mapped):
    class Foreign(nn.Module):
        def forward(self, x):
            return x

    replace_kernel_forward_from_hub(Foreign, "Same")
    assert run(Foreign())(0) == 1


def test_mappings_end_with_their_block_and_hold_in_their_thread_alone(mapped, model):
    scope = use_kernel_mapping({}, inherit_mapping=False)
    for _ in range(2):  # it can be entered again
        with contextlib.suppress(KeyError), scope:
            assert run(model)(0) == 0
            register_kernel_mapping({"Same": {"cpu": AddOne}})
            assert run(model)(0) == 1
            raise KeyError
    assert run(model)(0) == 2
    seen = []
    thread = threading.Thread(target=lambda: seen.append(run(model)(0)))
    thread.start()
    thread.join()
    assert seen == [0]


def test_what_is_registered_outside_of_blocks_holds_in_every_thread():
    try:
        register_kernel_mapping({"Same": {"cpu": AddOne}}, inherit_mapping=False)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(run(Same())(0)))
        thread.start()
        thread.join()
        assert seen == [1]
    finally:
        register_kernel_mapping({}, inherit_mapping=False)


def test_the_report_is_a_table_and_tells_every_candidate(mapped, model):
    assert "not kernelized" in str(kernelize_report(model))
    with use_kernel_mapping({"Same": {"cuda": Missing(None)}, "Other": {}}, inherit_mapping=True):
        run(nn.Sequential(model, Same()))
    report = kernelize_report(nn.ModuleList([Same(), Same(), nn.ReLU(), model]))
    assert str(report).splitlines() == [
        "module  layer  runs         because",
        "* (2)   Same   own forward  not kernelized",
        "3.0     Same   kernel       registered for cpu FALLBACK",
        "3.1     Other  kernel       registered for cpu FALLBACK",
        "2 of 4 layers run a kernel",
    ]
    assert "for cuda FALLBACK: it is for cuda, the model runs on cpu" in report.trace()
    assert "for cpu FALLBACK: chosen" in report.trace()
    assert len(report.replaced) == len(report.kept) == 2
    assert "no layer of this model is marked" in str(kernelize_report(nn.ReLU()))


def test_repositories_are_equal_when_they_name_the_same():
    one = LayerRepository("a/b", layer_name="C", version=1, trust_remote_code=["a/b"])
    same = LayerRepository("a/b", layer_name="C", version=1, trust_remote_code=["a/b"])
    assert one == same
    assert hash(one) == hash(same)
    assert one != LayerRepository("a/b", layer_name="C", version=2)
    assert str(one) == "`a/b` (version 1), layer `C`"
    assert str(LocalLayerRepository("x", layer_name="C")) == "`x`, layer `C`"
