# SPDX-License-Identifier: Apache-2.0

import contextlib
import copy
import functools

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.marked_layers import (  # noqa: E402 - skipped without torch
    FailingSource,
    Same,
    attributes_of,
    kernelize_on_cpu,
)
from torch import nn  # noqa: E402

from kernforge import (  # noqa: E402
    Mode,
    kernelize_report,
    kernelized,
    unkernelize,
    use_kernel_mapping,
)
from kernforge.errors import (  # noqa: E402
    IntegrityError,
    LayerError,
    NoVariantError,
)


def test_kernelizing_twice_and_back_leaves_nothing(mapped, model):
    before = attributes_of(model)
    assert kernelize_on_cpu(kernelize_on_cpu(model))(0) == 2
    unkernelize(unkernelize(model))
    assert model(0) == 0
    assert attributes_of(model) == before


def test_a_forward_of_the_instance_itself_comes_back(mapped, model):
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
def test_an_error_leaves_the_model_as_it_was(mapped, model, wrong):
    kernelize_on_cpu(model)
    before = attributes_of(model)
    with use_kernel_mapping({"Other": {"cpu": wrong}}):
        with pytest.raises(type(wrong.error)):
            kernelize_on_cpu(model)
        with pytest.raises(type(wrong.error)), kernelized(model, mode=Mode.INFERENCE, device="cpu"):
            pytest.fail("the block was entered")
    assert attributes_of(model) == before


def test_a_block_gives_back_what_was_there(mapped, model):
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


def test_a_forward_that_was_put_over_a_kernel_is_not_thrown_away(mapped, model):
    kernelize_on_cpu(model)
    inner = model[1].forward
    model[1].forward = lambda x: 10 * inner(x)
    assert kernelize_report(model).layers[1].reason == "other code replaced its forward"
    with pytest.raises(LayerError, match="the forward of 1 was exchanged again"):
        unkernelize(model)
    assert model(0) == 20
    # Kernelizing takes it for the module's own.
    assert unkernelize(kernelize_on_cpu(model))(0) == 10 * 1


def test_names_that_nobody_mapped_are_reported_once(model, caplog):
    with use_kernel_mapping({}, inherit_mapping=False):
        kernelize_on_cpu(nn.Sequential(model, Same()))
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "no kernel mapping names Other, Same"
    ]
