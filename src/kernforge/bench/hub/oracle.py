# SPDX-License-Identifier: Apache-2.0
"""The process that says what is right: ``python -m kernforge.bench.hub.oracle SPEC READ WRITE``.

It runs a script's ``verify_`` methods, in a process in which nothing is timed and which never sees
the inputs' results but those that it is shown. The kernel is loaded only if a script's ``setup_``
or ``verify_`` uses it. Whether a result will do is asked of ``torch.allclose`` as the hub's client
asks it, which a script may have replaced by its own.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from kernforge.bench.hub import scripts
from kernforge.system import garbage

_ATOL = 1e-2  # the hub's client's


class Oracle:
    """A script and what it said last.

    Args:
        spec: script, repository, kernel, registry, trust, device, and the file for results.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        load = functools.partial(
            scripts.load_kernel,
            spec["kernel"],
            registry=spec["registry"],
            backend="cpu" if spec["device"] == "cpu" else None,
            trust=spec["trust"],
        )
        self._script = scripts.Script(
            Path(spec["script"]), Path(spec["repo"]), load, spec["device"]
        )
        self._exchange = spec["exchange"]
        self._after: set[str] = set()
        self._device = spec["device"]

    def entries(self, _wanted: dict[str, Any]) -> dict[str, Any]:
        """All workloads of the script."""
        return {"entries": self._script.entries()}

    def probe(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """What a workload is like: sizes of its tensors, whether its result is put together late."""
        entry, seed = wanted["entry"], wanted["seed"]
        one, method = self._script.make(entry, seed)
        sizes = [each.untyped_storage().nbytes() for each in scripts.held(one)]
        if not self._script.entries()[entry]["verify"]:
            return {"held": sizes, "late": False, "used": False, "after": False}
        before = one.out
        try:
            self._script.reference(one, method)()
        except Exception:  # noqa: BLE001 - whatever it raises, it may need what the workload makes
            self._after.add(entry)
            one, _ = self._script.make(entry, seed)
            getattr(one, method)()
            before = one.out
            self._script.reference(one, method)()
        return {
            "held": sizes,
            "late": one.out is not before,
            "used": self._script.kernel.was_used,
            "after": entry in self._after,
        }

    def reference(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Put what is right for a seed into the exchange."""
        import torch  # noqa: PLC0415

        entry = wanted["entry"]
        one, method = self._script.make(entry, wanted["seed"])
        if entry in self._after:
            getattr(one, method)()
        result = self._script.reference(one, method)()
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"verify_ returned a {type(result).__name__} and no tensor")
        plain = result.detach().cpu().contiguous()
        size = plain.numel() * plain.element_size()
        if size:
            flat = plain.reshape(-1).view(torch.uint8)
            torch.from_file(self._exchange, shared=True, size=size, dtype=torch.uint8).copy_(flat)
        return {"shape": list(plain.shape), "dtype": str(plain.dtype).removeprefix("torch.")}

    def accepts(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Whether the script would accept what it is shown beside what is right, and zeros."""
        import torch  # noqa: PLC0415

        dtype, shape = getattr(torch, wanted["dtype"]), wanted["shape"]
        got, right = (
            torch.from_file(path, shared=True, size=wanted["size"], dtype=torch.uint8)
            .clone()
            .view(dtype)
            .view(shape)
            .to(self._device)
            for path in (wanted["got"], wanted["right"])
        )
        return {
            "accepts": bool(torch.allclose(got, right, atol=_ATOL)),
            "zeros": bool(torch.allclose(torch.zeros_like(right), right, atol=_ATOL)),
        }


def main(argv: list[str]) -> None:
    """Load the script, then answer until the judge hangs up."""
    garbage.work_seldom()
    spec = json.loads(argv[0])
    questions, answers = os.fdopen(int(argv[1])), os.fdopen(int(argv[2]), "w")
    dumps, loads = json.dumps, json.loads

    def say(document: dict[str, Any]) -> None:
        answers.write(dumps(document) + "\n")
        answers.flush()

    try:
        oracle = Oracle(spec)
    except Exception as error:  # noqa: BLE001 - whatever a script raises is its result
        say({"failed": _words(error)})
        return
    say(oracle.entries({}))
    for line in questions:
        wanted = loads(line)
        try:
            say(getattr(oracle, wanted["do"])(wanted))
        except Exception as error:  # noqa: BLE001 - as above
            say({"failed": _words(error)})


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


if __name__ == "__main__":
    main(sys.argv[1:])
