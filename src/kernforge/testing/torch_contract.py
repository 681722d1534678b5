# SPDX-License-Identifier: Apache-2.0
"""What torch is told of an operator: its schema, fake implementation, derivatives, compilation."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kernforge.testing import case as cases
from kernforge.testing import compare, guards
from kernforge.testing.inputs import view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernforge.testing.case import Declared
    from kernforge.testing.inputs import Draw

OPCHECKS = {
    "schema": "test_schema",
    "autograd": "test_autograd_registration",
    "fake": "test_faketensor",
    "aot": "test_aot_dispatch_dynamic",
}
"""The parts of ``torch.library.opcheck``."""

_CALLS = 3


def opcheck(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...], part: str
) -> None:
    """Hold each custom operator that a call reaches against one part of ``opcheck``."""
    reached = _reached(declared, op, draw, shape)
    if part == "fake" and "transposed" in declared.views:  # where strides of results may differ
        reached += _reached(declared, op, replace(draw, layout="transposed"), shape)
    if not reached:
        pytest.skip("no custom operator is reached: this is plain Python for torch")
    for func, args, kwargs in reached:
        if part == "aot" and _opcheck(func, args, kwargs, "fake"):
            pytest.skip("the fake implementation is wrong: see opcheck[fake]")
        if text := _opcheck(func, args, kwargs, part):
            raise AssertionError(f"{func}: {text}")


def _reached(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    case = cases.Case.make(declared, draw, shape)
    _, watch = guards.watched(lambda: op(*case.args))
    return [
        (func, _leaves(args, declared, func), {k: _leaf(v, declared, func) for k, v in kw.items()})
        for func, args, kw in watch.calls
    ]


def _leaves(args: tuple[Any, ...], declared: Declared, func: Any) -> tuple[Any, ...]:
    return tuple(_leaf(a, declared, func) for a in args)


def _leaf(value: Any, declared: Declared, func: Any) -> Any:
    if not cases.is_tensor(value):
        return value
    wants = declared.backward and value.is_floating_point() and not func._schema.is_mutable  # noqa: SLF001
    return value.detach().clone().requires_grad_(wants)


def _opcheck(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], part: str) -> str:
    """What one part says against an operator; "" when nothing."""
    import torch  # noqa: PLC0415 - torch is imported where it is used

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own compiler imports what torch deprecates
        told = torch.library.opcheck(
            func, args, kwargs, test_utils=OPCHECKS[part], raise_exception=False
        )
    (result,) = told.values()
    return "" if result == "SUCCESS" else f"{type(result).__name__}: {result}"


def assert_compiles(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Compile a call whole, and call it again with equal shapes.

    On the GPU by inductor; on the CPU by ``aot_eager``, which needs no compiler and meets the same
    graph breaks, fake implementations and guards.
    """
    _need_fake(declared, op, draw, shape)
    with _compiled(op, draw) as compiled:
        for _ in range(_CALLS):
            case = cases.Case.make(declared, draw, shape)
            eager = cases.Case.make(declared, draw, shape)
            got = case.results(compiled(*case.args))
            alone = eager.results(op(*eager.args))
            _assert_alike(declared, case, got, alone)


def assert_compiled_gradients(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Compile a call whole with its derivative, which is that of the call that is not compiled."""
    _need_fake(declared, op, draw, shape)
    case = cases.Case.make(declared, draw, shape)
    with _compiled(op, draw) as compiled:
        mine = _derivatives(compiled, case.args, None, 1)
    alone = _derivatives(op, case.args, None, 1)
    near = _derivatives(declared.reference, case.args, _coarse(draw.dtype), 1)
    for number, (got, want, same) in enumerate(zip(mine, alone, near, strict=True)):
        what = f"compiled derivative by argument {number}"
        compare.assert_near(got, want.double(), same, what=what, factor=declared.factor)


def _need_fake(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    for func, args, kwargs in _reached(declared, op, draw, shape):
        if _opcheck(func, args, kwargs, "fake"):
            pytest.skip("the fake implementation is wrong: see opcheck[fake]")


@contextmanager
def _compiled(op: Callable[..., Any], draw: Draw) -> Iterator[Callable[..., Any]]:
    """The operator compiled whole; a second compilation of it is an error."""
    import torch  # noqa: PLC0415

    backend = "inductor" if draw.device.startswith("cuda") else "aot_eager"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own compiler imports what torch deprecates
        torch._dynamo.reset()  # noqa: SLF001 - the graphs of other tests are not this one's

        def step(*args: Any) -> Any:  # an operator may be an object, which torch cannot compile
            return op(*args)

        compiled = torch.compile(step, fullgraph=True, backend=backend)
        with torch._dynamo.config.patch(error_on_recompile=True):  # noqa: SLF001
            yield compiled


def _assert_alike(declared: Declared, case: cases.Case, got: Any, alone: Any) -> None:
    """Compiled and eager agree as far as the reference's own error goes."""
    pairs = cases.wanted(declared, case.before)
    for mine, theirs, (_, same) in zip(got, alone, pairs, strict=True):
        exact = theirs.double() if theirs.is_floating_point() else theirs
        compare.assert_near(mine, exact, same, what="compiled result", factor=declared.factor)


def assert_gradients(
    declared: Declared,
    op: Callable[..., Any],
    draw: Draw,
    shape: tuple[int, ...],
    *,
    order: int,
) -> None:
    """Hold derivatives against numerical ones in float64, against the reference's in others."""
    import torch  # noqa: PLC0415

    if draw.dtype == torch.float64:
        check = torch.autograd.gradcheck if order == 1 else torch.autograd.gradgradcheck
        args = _leaves_of(cases.Case.make(declared, draw, shape).args, draw.dtype)
        check(op, args, check_undefined_grad=False, fast_mode=True)
    for layout, of_grad in (("", ""), ("", "one repeated"), ("transposed", "transposed")):
        if layout and layout not in declared.views:
            continue
        args = cases.Case.make(declared, replace(draw, layout=layout), shape).args
        mine = _derivatives(op, args, None, order, of_grad)
        exact = _derivatives(declared.reference, args, torch.float64, order, of_grad)
        same = _derivatives(declared.reference, args, _coarse(draw.dtype), order, of_grad)
        for number, (got, want, near) in enumerate(zip(mine, exact, same, strict=True)):
            what = f"derivative {order} by argument {number}"
            if of_grad:
                what += f" ({of_grad} incoming gradient)"
            compare.assert_near(got, want, near, what=what, factor=declared.factor)


def _coarse(dtype: Any) -> Any:
    """The dtype whose errors are allowed: float64 has no higher precision to be held against."""
    import torch  # noqa: PLC0415

    return torch.float32 if dtype == torch.float64 else dtype


def _leaves_of(args: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """The arguments with their floats in a dtype, as leaves that want a gradient."""

    def leaf(a: Any) -> Any:
        if not (cases.is_tensor(a) and a.is_floating_point()):
            return a
        return a.detach().to(dtype or a.dtype).clone().requires_grad_(True)

    return tuple(map(leaf, args))


def _derivatives(
    function: Callable[..., Any], args: tuple[Any, ...], dtype: Any, order: int, layout: str = ""
) -> list[Any]:
    """The gradients of a fixed weighted sum of the results, of first or second order.

    Args:
        function: what is differentiated.
        args: its arguments.
        dtype: of its floats; None leaves them.
        order: 1 or 2.
        layout: of the weights, which are the gradient that comes in.
    """
    import torch  # noqa: PLC0415

    taken = _leaves_of(args, dtype)
    by = [a for a in taken if cases.is_tensor(a) and a.requires_grad]
    result = function(*taken)
    results = result if isinstance(result, (tuple, list)) else (result,)
    floats = [r for r in results if r.is_floating_point()]
    weights = [_weights(r, layout) for r in floats]
    grads: tuple[Any, ...] = ()
    for _ in range(order):
        if not floats:  # what came before does not depend on the arguments
            return [torch.zeros_like(a) for a in by]
        grads = torch.autograd.grad(
            floats, by, weights, create_graph=order > 1, allow_unused=True, materialize_grads=True
        )
        floats = [g for g in grads if g.requires_grad]
        weights = [_weights(g, layout) for g in floats]
    return [g.detach() for g in grads]


def _weights(like: Any, layout: str) -> Any:
    """Numbers from -1 to 1 in sixteenths: exact in every dtype."""
    import torch  # noqa: PLC0415

    steps = torch.arange(like.numel(), device=like.device) * 7 % 33 - 16
    made = (steps.double() / 16).to(like.dtype).view(like.shape)
    return view(made, layout) if layout else made
