# SPDX-License-Identifier: Apache-2.0
"""An operator's registration with torch: schema, fake implementation, derivatives, compilation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

from kernforge.compare.results import assert_near
from kernforge.compare.tensors import as_tuple, is_tensor
from kernforge.testing import guards
from kernforge.testing.case import Trial
from kernforge.testing.inputs import view

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


def opcheck(trial: Trial, part: str) -> None:
    """Run one part of ``opcheck`` on each custom operator that a call reaches."""
    reached = _reached(trial)
    if part == "fake" and "transposed" in trial.declared.views:  # results may differ in strides
        reached += _reached(trial.drawn(layout="transposed"))
    if not reached:
        pytest.skip("the call reaches no custom operator: it is plain Python for torch")
    if part == "aot":
        _skip_if_fake_wrong(reached)
    for func, args, kwargs in reached:
        if text := _opcheck(func, args, kwargs, part):
            raise AssertionError(f"{func}: {text}")


def _reached(trial: Trial) -> list[_Call]:
    """The custom operators that a call reaches, with copies of their arguments."""
    case = trial.case()
    _, watch = guards.watched(lambda: trial.op(*case.args))

    def leaf(value: Any, func: Any) -> Any:
        if not is_tensor(value):
            return value
        derivable = value.is_floating_point() and not func._schema.is_mutable  # noqa: SLF001
        return value.detach().clone().requires_grad_(trial.declared.backward and derivable)

    return [
        (func, tuple(leaf(a, func) for a in args), {n: leaf(a, func) for n, a in kwargs.items()})
        for func, args, kwargs in watch.calls
    ]


def _opcheck(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], part: str) -> str:
    """The error of one part of ``opcheck``; "" if there is none."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's compiler imports deprecated names
        results = torch.library.opcheck(
            func, args, kwargs, test_utils=OPCHECKS[part], raise_exception=False
        )
    (result,) = results.values()
    return "" if result == "SUCCESS" else f"{type(result).__name__}: {result}"


def assert_compiles(trial: Trial) -> None:
    """Compile a call without graph breaks, and call it again with equal shapes.

    The backend is inductor on the GPU, and on the CPU ``aot_eager``, which needs no compiler and
    has the same graph breaks, fake implementations and guards.
    """
    _skip_if_fake_wrong(_reached(trial))
    with _compiled(trial) as compiled:
        for _ in range(_CALLS):
            case, eager = trial.case(), trial.case()
            got = case.results(compiled(*case.args))
            wanted = eager.results(trial.op(*eager.args))
            exact = [each.double() if each.is_floating_point() else each for each in wanted]
            same = [each for _, each in trial.declared.expected(case.before)]
            _compare(got, exact, same, "compiled result", trial.declared.factor)


def assert_compiled_gradients(trial: Trial) -> None:
    """Compile a call with its derivative, and compare with the derivative of the eager call."""
    _skip_if_fake_wrong(_reached(trial))
    args = trial.case().args
    with _compiled(trial) as compiled:
        got = _derivatives(compiled, args)
    exact = [each.double() for each in _derivatives(trial.op, args)]
    same = _derivatives(trial.declared.reference, args, _coarse(trial.draw.dtype))
    _compare(got, exact, same, "compiled derivative by argument {}", trial.declared.factor)


def _skip_if_fake_wrong(reached: list[_Call]) -> None:
    if any(_opcheck(*call, "fake") for call in reached):
        pytest.skip("the fake implementation is wrong: see opcheck[fake]")


@contextmanager
def _compiled(trial: Trial) -> Iterator[Callable[..., Any]]:
    """The operator compiled without graph breaks; a second compilation is an error."""
    import torch

    backend = "inductor" if trial.draw.device.startswith("cuda") else "aot_eager"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's compiler imports deprecated names
        torch._dynamo.reset()  # noqa: SLF001 - the graphs of other tests are not this one's

        def step(*args: Any) -> Any:  # an operator may be an object, which torch cannot compile
            return trial.op(*args)

        compiled = torch.compile(step, fullgraph=True, backend=backend)
        with torch._dynamo.config.patch(error_on_recompile=True):  # noqa: SLF001
            yield compiled


def assert_gradients(trial: Trial, *, order: int) -> None:
    """Compare derivatives with numerical ones in float64, with the reference's in other dtypes."""
    import torch

    declared, dtype = trial.declared, trial.draw.dtype
    if dtype == torch.float64:
        check = torch.autograd.gradcheck if order == 1 else torch.autograd.gradgradcheck
        args = _leaves_of(trial.case().args, dtype)
        check(trial.op, args, check_undefined_grad=False, fast_mode=True)
    for layout, of_grad in (("", ""), ("", "one repeated"), ("transposed", "transposed")):
        if layout and layout not in declared.views:
            continue
        args = trial.drawn(layout=layout).case().args
        got, exact, same = (
            _derivatives(function, args, to, order, of_grad)
            for function, to in (
                (trial.op, None),
                (declared.reference, torch.float64),
                (declared.reference, _coarse(dtype)),
            )
        )
        what = f"derivative {order} by argument {{}}"
        what += f" ({of_grad} incoming gradient)" if of_grad else ""
        _compare(got, exact, same, what, declared.factor)


def _compare(
    got: Sequence[Any], exact: Sequence[Any], same: Sequence[Any], what: str, factor: float
) -> None:
    """Compare gradients; ``what`` has a place for the number of the argument."""
    for number, each in enumerate(zip(got, exact, same, strict=True)):
        assert_near(*each, what=what.format(number), factor=factor)


def _coarse(dtype: Any) -> Any:
    """The dtype of the reference for the tolerance: float32 for float64, else the dtype itself."""
    import torch

    return torch.float32 if dtype == torch.float64 else dtype


def _leaves_of(args: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """Copies of the arguments with their floats in a dtype, as leaves that require a gradient."""

    def leaf(a: Any) -> Any:
        if not (is_tensor(a) and a.is_floating_point()):
            return a
        return a.detach().to(dtype or a.dtype).clone().requires_grad_(True)

    return tuple(map(leaf, args))


def _derivatives(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    dtype: Any = None,
    order: int = 1,
    layout: str = "",
) -> list[Any]:
    """The gradients of a fixed weighted sum of the results, of first or second order.

    Args:
        dtype: dtype of the float arguments; None does not change them.
        layout: layout of the weights, which are the incoming gradient.
    """
    import torch

    leaves = _leaves_of(args, dtype)
    inputs = [a for a in leaves if is_tensor(a) and a.requires_grad]
    floats = [r for r in as_tuple(function(*leaves)) if r.is_floating_point()]
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
