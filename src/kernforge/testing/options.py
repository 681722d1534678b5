# SPDX-License-Identifier: Apache-2.0
"""What an author may declare of an operator; each mistake is told where it is made, once.

A wrong declaration would else fail in every check of it, hundreds of times, and in torch's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernforge.errors import UsageError
from kernforge.testing.case import Declared
from kernforge.testing.inputs import VIEWS, check_dtype

if TYPE_CHECKING:
    from collections.abc import Collection

_DEVICES = ("cpu", "cuda")
_GIVEN = ("op", "reference", "inputs")


def tidied(options: Mapping[str, Any], checks: Collection[str]) -> dict[str, Any]:
    """The options of ``op_tests`` as ``Declared`` takes them.

    One name stands for a list of it, and ``torch.float32`` for its name.

    Args:
        options: what the author wrote, beside op, reference and inputs.
        checks: names of the checks.

    Raises:
        UsageError: an option, or what it says, is none.
    """
    known = {name for name in Declared.__slots__ if name not in _GIVEN}
    for name in options:
        _among("option", name, known)
    found = dict(options)
    for name in ("dtypes", "devices", "views"):
        if name in found:
            found[name] = _names(name, found[name])
    for name in found.get("dtypes", ()):
        check_dtype(name)
    for option, there in (("device", _DEVICES), ("view", VIEWS)):
        for name in found.get(f"{option}s", ()):
            _among(option, name, there)
    if "shapes" in found:
        _check_shapes(found["shapes"])
    if found.get("large") is not None and not _is_shape(found["large"]):
        raise UsageError(
            f"large is {found['large']!r}", hint="write a shape, as large=(2**31 + 1,)"
        )
    _check_left_out(found.get("leave_out", {}), checks)
    return found


def _check_left_out(given: Any, checks: Collection[str]) -> None:
    if not isinstance(given, Mapping):
        raise UsageError(
            f"leave_out is {given!r}", hint='say why: leave_out={"determinism": "sums by atomics"}'
        )
    for name in given:
        _among("check", name, checks)


def _names(option: str, given: Any) -> tuple[str, ...]:
    listed = (given,) if isinstance(given, str) or not hasattr(given, "__iter__") else tuple(given)
    if not listed and option != "views":
        raise UsageError(
            f"{option} is empty, so nothing would be checked", hint="name at least one"
        )
    return tuple(str(one).removeprefix("torch.") for one in listed)


def _check_shapes(given: Any) -> None:
    hint = 'name each by what it stands for: shapes={"one element": (1,), "odd": (7, 13)}'
    if not isinstance(given, Mapping) or not given:
        raise UsageError(f"shapes is {given!r}", hint=hint)
    for name, shape in given.items():
        if not _is_shape(shape):
            raise UsageError(f"shape {name!r} is {shape!r}, which is no tuple of sizes", hint=hint)


def _is_shape(given: Any) -> bool:
    return isinstance(given, tuple | list) and all(isinstance(size, int) for size in given)


def _among(what: str, name: str, there: Collection[str]) -> None:
    if name not in there:
        raise UsageError(
            f"there is no {what} {name!r}", hint=f"there are {', '.join(sorted(there))}"
        )
