# SPDX-License-Identifier: Apache-2.0
"""Operators on the CPU under all checks, one honest and each other with one fault.

They compute ``2 * x``. Memory is touched by address, as a C++ kernel would. ``FAULTS`` says which
checks must fail for each.
"""

import ctypes
import itertools

import torch

from kernforge.testing import SHAPES, op_tests

_calls, _numbers = itertools.count(), itertools.count()
# Torch allocates by itself in these, so that the fault would harm the process that tests.
NOT_HELD = dict.fromkeys(
    ("opcheck", "compile", "gradients", "compiled_gradients"),
    "writes into the allocator's memory",
)


def define(
    function,
    fake=lambda x: x.new_empty(x.shape),
    backward=lambda grad: grad * 2,
    schema="(Tensor x) -> Tensor",
):
    """A function on a custom operator; ``fake=None`` leaves its fake out."""
    name = f"broken::number_{next(_numbers)}"
    op = torch.library.custom_op(name, function, mutates_args=(), schema=schema)
    if fake:
        op.register_fake(fake)
    op.register_autograd(lambda ctx, grad: backward(grad))  # which torch.func does not take

    overload = op._opoverload  # what a compiler can trace

    # A compiler counts their parameters.
    def of_one(x):
        return overload(x)

    def of_two(a, b):
        return overload(a, b)

    class Differentiable(torch.autograd.Function):
        generate_vmap_rule = True

        forward = staticmethod(of_two if "Tensor b" in schema else of_one)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return backward(grad)

    return Differentiable.apply


def double(x):
    out = torch.empty(x.shape, dtype=x.dtype)
    return torch.mul(x, 2, out=out)


def _float_at(tensor, index):
    return ctypes.c_float.from_address(tensor.data_ptr() + 4 * index)


def _write_behind(x):
    out = double(x)
    if x.numel():
        _float_at(out, out.numel()).value = 1.0
    return out


def _write_before(x):
    out = double(x)
    if x.numel():
        _float_at(out, -1).value = 1.0
    return out


def _read_behind(x):
    out = double(x)
    if x.numel() and x.is_contiguous():
        # A fault that only some neighbours show: NaN does, ordinary numbers do not.
        behind = _float_at(x, x.numel()).value
        out.view(-1)[-1] += 0.0 if behind == behind else behind  # noqa: PLR0124 - NaN differs
    return out


def _wrong_tail(x):
    out = torch.empty(x.shape, dtype=x.dtype)
    whole = x.numel() // 4 * 4
    out.view(-1)[:whole] = x.reshape(-1)[:whole] * 2
    return out


def _ignored_stride(x):
    out = torch.empty(x.shape, dtype=x.dtype)
    for at in range(x.numel()) if not x.is_contiguous() else ():
        _float_at(out, at).value = 2 * _float_at(x, at % (x.untyped_storage().nbytes() // 4)).value
    return out if not x.is_contiguous() else double(x)


def _not_deterministic(x):
    # As a sum by atomics is: right, but its last bits are another call's.
    out = double(x)
    other = torch.nextafter(out, torch.full_like(out, float("inf")))
    return torch.where(out.abs() < 1e30, other, out) if next(_calls) % 2 else out


def _modified_input(x):
    out = double(x)
    x.detach().zero_()
    return out


def _wrong_nan(x):
    return torch.where(x.isnan(), 0.0, double(x)).contiguous()


def _row(x):
    return x.new_empty((*x.shape, 1))


def _as_if_packed(grad):
    """What a kernel reads that takes a pointer and not the strides."""
    packed = torch.empty(grad.shape).stride()
    return (
        grad.detach().clone(memory_format=torch.preserve_format).as_strided(grad.shape, packed) * 2
    )


def _strides_of_the_first(a, b):
    other = b if a.stride() == b.stride() else b.contiguous().mT.reshape(b.shape)
    return torch.add(a, other, out=torch.empty(a.shape, dtype=a.dtype))


def _wider(x):
    return x.float() * 2


honest = define(double)


class Recompiles:
    """Has a Python number that changes with each call, which a compiled graph depends on."""

    def __init__(self):
        self.count = 0

    def __call__(self, x):
        self.count += 1
        return honest(x) if self.count < 2**40 else x


def _graph_break(x):
    """Looks at a value on the host, which a whole graph cannot."""
    if x.numel() and float(x.reshape(-1)[0].detach()) > 1e30:
        return honest(x)
    return honest(x)


mixed_strides = define(
    _strides_of_the_first,
    fake=lambda a, b: a.new_empty(a.shape),
    backward=lambda grad: (grad, grad),
    schema="(Tensor a, Tensor b) -> Tensor",
)
OF_TWO = {
    "reference": lambda a, b: a + b,
    "inputs": lambda draw, shape: (draw(shape), draw(shape)),
}
VALUES_TELL = dict.fromkeys(("opcheck", "gradients"), "the values tell")
MOVED = {"compiled_gradients": "torch moves the gradient itself there"}
FAKE = {"opcheck[fake-cpu]"}
FAULTS = {
    "Honest": (honest, set(), {}),
    "WriteBehind": (define(_write_behind), {"sentinels"}, {"leave_out": NOT_HELD}),
    "WriteBefore": (define(_write_before), {"sentinels"}, {"leave_out": NOT_HELD}),
    "ReadBehind": (define(_read_behind), {"neighbours"}, {}),
    "WrongTail": (define(_wrong_tail), {"values"}, {}),
    "IgnoredStride": (define(_ignored_stride), {"views"}, {}),
    "NotDeterministic": (define(_not_deterministic), {"determinism"}, {}),
    "ModifiedInput": (define(_modified_input), {"inputs_untouched"}, {}),
    "WrongNan": (define(_wrong_nan), {"special_values"}, {}),
    "MissingFake": (define(double, fake=None), FAKE, {}),
    "WrongFakeStrides": (define(double, fake=torch.empty_like), FAKE, {}),
    "WrongFakeShape": (define(double, fake=_row), FAKE, {}),
    "IncomingStrides": (
        define(double, backward=_as_if_packed),
        {"gradients"},
        {"leave_out": MOVED},
    ),
    "MixedStrides": (mixed_strides, {"mixed_views"}, OF_TWO),
    "WrongDtype": (
        define(_wider),
        {"values"},
        {"leave_out": VALUES_TELL, "dtypes": ("float16",)},
    ),
    "WrongBackward": (
        define(double, backward=lambda grad: grad * 3),
        {"gradients"},
        {},
    ),
    "Recompiles": (Recompiles(), {"compile"}, {}),
    "GraphBreak": (_graph_break, {"compile", "compiled_gradients"}, {}),
}
USUAL = {"reference": lambda x: x * 2, "inputs": lambda draw, shape: (draw(shape),)}
VIEWS = ("transposed", "every second", "one repeated", "1 elements in", "3 elements in")
for _name, (_op, _, _declared) in FAULTS.items():
    globals()[f"Test{_name}"] = op_tests(
        op=_op,
        shapes=SHAPES,
        views=VIEWS,
        devices=("cpu",),
        backward=True,
        **USUAL | _declared,
    )
