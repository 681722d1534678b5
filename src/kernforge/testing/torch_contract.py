# SPDX-License-Identifier: Apache-2.0
"""An operator's registration with torch: schema, fake implementation, derivatives, compilation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from kernforge.testing import case as cases
from kernforge.testing import compare, guards
from kernforge.testing.case import OpDeclaration
from kernforge.testing.inputs import Draw, view

__tracebackhide__ = True  # a failure shows the test and the operator, not how we compare
OPCHECKS = {
    "schema": "test_schema",
    "autograd": "test_autograd_registration",
    "fake": "test_faketensor",
    "aot": "test_aot_dispatch_dynamic",
}
"""The parts of ``torch.library.opcheck``."""

_CALLS = 3
_Call: TypeAlias = tuple[Any, tuple[Any, ...], dict[str, Any]]


def opcheck(
    declared: OpDeclaration, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...], part: str
) -> None:
    """Run one part of ``opcheck`` on each custom operator that a call reaches."""
    reached = _reached(declared, op, draw, shape)
    if part == "fake" and "transposed" in declared.views:  # the strides of results may differ then
        reached += _reached(declared, op, replace(draw, layout="transposed"), shape)
    if not reached:
        pytest.skip("the call reaches no custom operator: it is plain Python for torch")
    if part == "aot":
        _skip_if_fake_wrong(reached)
    for func, args, kwargs in reached:
        if text := _opcheck(func, args, kwargs, part):
            raise AssertionError(f"{func}: {text}")


def _reached(
    declared: OpDeclaration, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> list[_Call]:
    case = cases.Case.make(declared, draw, shape)
    _, watch = guards.watched(lambda: op(*case.args))
    return [
        (
            func,
            tuple(_leaf(a, declared, func) for a in args),
            {name: _leaf(a, declared, func) for name, a in kwargs.items()},
        )
        for func, args, kwargs in watch.calls
    ]


def _leaf(value: Any, declared: OpDeclaration, func: Any) -> Any:
    if not cases.is_tensor(value):
        return value
    wants = declared.backward and value.is_floating_point() and not func._schema.is_mutable  # noqa: SLF001
    return value.detach().clone().requires_grad_(wants)


def _opcheck(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], part: str) -> str:
    """The error of one part of ``opcheck``; "" if there is none."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own compiler imports what torch deprecates
        results = torch.library.opcheck(
            func, args, kwargs, test_utils=OPCHECKS[part], raise_exception=False
        )
    (result,) = results.values()
    return "" if result == "SUCCESS" else f"{type(result).__name__}: {result}"


def assert_compiles(
    declared: OpDeclaration, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Compile a call without graph breaks, and call it again with equal shapes.

    The backend is inductor on the GPU, and on the CPU ``aot_eager``, which needs no compiler and
    has the same graph breaks, fake implementations and guards.
    """
    _skip_if_fake_wrong(_reached(declared, op, draw, shape))
    with _compiled(op, draw) as compiled:
        for _ in range(_CALLS):
            case = cases.Case.make(declared, draw, shape)
            eager = cases.Case.make(declared, draw, shape)
            got = case.results(compiled(*case.args))
            wanted = eager.results(op(*eager.args))
            exact = [each.double() if each.is_floating_point() else each for each in wanted]
            same = [each for _, each in cases.expected(declared, case.before)]
            _assert_near(got, exact, same, "compiled result", declared.factor)


def assert_compiled_gradients(
    declared: OpDeclaration, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Compile a call with its derivative, and compare with the derivative of the eager call."""
    _skip_if_fake_wrong(_reached(declared, op, draw, shape))
    case = cases.Case.make(declared, draw, shape)
    with _compiled(op, draw) as compiled:
        compiled_gradients = _derivatives(compiled, case.args, None, 1)
    eager_gradients = _derivatives(op, case.args, None, 1)
    reference_gradients = _derivatives(declared.reference, case.args, _coarse(draw.dtype), 1)
    exact = [each.double() for each in eager_gradients]
    what = "compiled derivative by argument {}"
    _assert_near(compiled_gradients, exact, reference_gradients, what, declared.factor)


def assert_autocast(
    declared: OpDeclaration, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Call under autocast, also on the meta device, where torch casts nothing."""
    import torch

    _skip_if_fake_wrong(_reached(declared, op, draw, shape))
    case = cases.Case.make(declared, draw, shape)
    meta = [a.to("meta") if cases.is_tensor(a) else a for a in case.args]
    with torch.autocast(draw.device.split(":")[0], torch.bfloat16):
        promised = _results(op(*meta))
        got = _results(op(*case.args))
    for number, (result, fake) in enumerate(zip(got, promised, strict=True)):
        if result.shape != fake.shape:
            raise AssertionError(
                f"result {number} under autocast is {list(result.shape)}, on the meta device"
                f" {list(fake.shape)}"
            )


def assert_transforms(
    declared: OpDeclaration, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Compare the gradients of ``torch.func`` with the reference's, and try forward mode.

    An operator without a formula for forward mode must refuse it. One that does not know of it
    returns tangents of zeros. What torch's own operators give there may be less accurate than the
    kernel's gradients, so the tolerance is wide.
    """
    import torch

    case = cases.Case.make(declared, draw, shape)
    leaves = _leaves_of(case.args, None)
    places = [i for i, a in enumerate(leaves) if cases.is_tensor(a) and a.requires_grad]
    floats = tuple(leaves[i].detach() for i in places)

    def results(*given: Any) -> tuple[Any, ...]:
        args = list(case.args)
        for place, value in zip(places, given, strict=True):
            args[place] = value
        return tuple(r for r in _results(op(*args)) if r.is_floating_point())

    def weighted_sum(*given: Any) -> Any:
        return sum((r * _weights(r, "")).sum() for r in results(*given))

    gradients = torch.func.grad(weighted_sum, tuple(range(len(floats))))(*floats)
    exact_gradients = _derivatives(declared.reference, case.args, torch.float64, 1)
    reference_gradients = _derivatives(declared.reference, case.args, _coarse(draw.dtype), 1)
    what = "derivative of torch.func.grad by argument {}"
    _assert_near(gradients, exact_gradients, reference_gradients, what, 10 * declared.factor)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch compiles its own formulas by what it deprecates
            _, tangents = torch.func.jvp(results, floats, gradients)
    except RuntimeError:  # refused
        return
    # With the weights w of the results and J the derivative, g = J^T w, so that w (J g) = |g|^2.
    forward = sum((t.double() * _weights(t, "").double()).sum() for t in tangents)
    backward = sum(g.double().square().sum() for g in gradients)
    if abs(forward - backward) > 0.02 * backward:
        raise AssertionError(
            f"forward mode gives a derivative of {float(forward)} where backward gives"
            f" {float(backward)}: refuse it, or give the operator a formula"
        )


def _results(returned: Any) -> tuple[Any, ...]:
    return tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)


def _skip_if_fake_wrong(reached: list[_Call]) -> None:
    if any(_opcheck(*call, "fake") for call in reached):
        pytest.skip("the fake implementation is wrong: see opcheck[fake]")


@contextmanager
def _compiled(op: Callable[..., Any], draw: Draw) -> Iterator[Callable[..., Any]]:
    """The operator compiled without graph breaks; a second compilation is an error."""
    import torch

    backend = "inductor" if draw.device.startswith("cuda") else "aot_eager"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own compiler imports what torch deprecates
        torch._dynamo.reset()  # noqa: SLF001 - the graphs of other tests are not this one's

        def step(*args: Any) -> Any:  # an operator may be an object, which torch cannot compile
            return op(*args)

        compiled = torch.compile(step, fullgraph=True, backend=backend)
        with torch._dynamo.config.patch(error_on_recompile=True):  # noqa: SLF001
            yield compiled


def assert_gradients(
    declared: OpDeclaration,
    op: Callable[..., Any],
    draw: Draw,
    shape: tuple[int, ...],
    *,
    order: int,
) -> None:
    """Compare derivatives with numerical ones in float64, with the reference's in other dtypes."""
    import torch

    if draw.dtype == torch.float64:
        check = torch.autograd.gradcheck if order == 1 else torch.autograd.gradgradcheck
        args = _leaves_of(cases.Case.make(declared, draw, shape).args, draw.dtype)
        check(op, args, check_undefined_grad=False, fast_mode=True)
    for layout, of_grad in (("", ""), ("", "one repeated"), ("transposed", "transposed")):
        if layout and layout not in declared.views:
            continue
        args = cases.Case.make(declared, replace(draw, layout=layout), shape).args
        gradients = _derivatives(op, args, None, order, of_grad)
        exact = _derivatives(declared.reference, args, torch.float64, order, of_grad)
        same = _derivatives(declared.reference, args, _coarse(draw.dtype), order, of_grad)
        what = f"derivative {order} by argument {{}}"
        what += f" ({of_grad} incoming gradient)" if of_grad else ""
        _assert_near(gradients, exact, same, what, declared.factor)


def _assert_near(
    got: Sequence[Any], exact: Sequence[Any], same: Sequence[Any], what: str, factor: float
) -> None:
    """Compare gradients; ``what`` has a place for the number of the argument."""
    for number, each in enumerate(zip(got, exact, same, strict=True)):
        compare.assert_near(*each, what=what.format(number), factor=factor)


def _coarse(dtype: Any) -> Any:
    """The dtype of the reference for the tolerance: float32 for float64, else the dtype itself."""
    import torch

    return torch.float32 if dtype == torch.float64 else dtype


def _leaves_of(args: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """Copies of the arguments with their floats in a dtype, as leaves that require a gradient."""

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
        dtype: dtype of the float arguments; None does not change them.
        layout: layout of the weights, which are the incoming gradient.
    """
    import torch

    leaves = _leaves_of(args, dtype)
    inputs = [a for a in leaves if cases.is_tensor(a) and a.requires_grad]
    floats = [r for r in _results(function(*leaves)) if r.is_floating_point()]
    weights = [_weights(r, layout) for r in floats]
    grads: tuple[Any, ...] = ()
    for _ in range(order):
        if not floats:  # the gradients of lower order do not depend on the arguments
            return [torch.zeros_like(a) for a in inputs]
        grads = torch.autograd.grad(
            floats,
            inputs,
            weights,
            create_graph=order > 1,
            allow_unused=True,
            materialize_grads=True,
        )
        floats = [g for g in grads if g.requires_grad]
        weights = [_weights(g, layout) for g in floats]
    return [g.detach() for g in grads]


def _weights(like: Any, layout: str) -> Any:
    """Numbers from -1 to 1 in sixteenths: exact in every dtype."""
    import torch

    steps = torch.arange(like.numel(), device=like.device) * 7 % 33 - 16
    weights = (steps.double() / 16).to(like.dtype).view(like.shape)
    return view(weights, layout) if layout else weights
