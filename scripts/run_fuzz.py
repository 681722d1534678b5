# SPDX-License-Identifier: Apache-2.0
"""Read thousands of documents that are nearly right, of each kind that others write.

    python scripts/run_fuzz.py --json fuzz.json                    # 10,000 of each kind
    python scripts/run_fuzz.py --kind ELF --seed 7 --examples 500  # some of one kind

Each kind is read in a process of its own, which may take 500 MB more than at its start, in batches
of 1,000; the result is written after each, and a run with the same ``--json`` and ``--seed`` goes
on after the last batch. What failed is written to ``tests/fuzz/corpus``, which the tests read
again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks"), str(ROOT / "src")]

from fuzz import engine, kinds  # noqa: E402 - after the path
from machine import describe  # noqa: E402 - after the path

from kernforge.system import files  # noqa: E402 - after the path

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
BATCH = 1000
_LARGEST = 100_000  # bytes of a document that is kept
_COUNTS = ("read", "refused", "untyped", "hangs", "memory")


def batch(name: str, seed: int, examples: int, answers: Any) -> None:
    """Read one batch, in a process of its own."""
    kind = kinds.kinds()[name]
    before = engine.limit_memory()
    outcome = engine.Outcome()
    began = time.monotonic()
    engine.run(kind, examples=examples, seed=seed, outcome=outcome)
    answers.send(
        {
            **{count: getattr(outcome, count) for count in _COUNTS},
            "slowest_s": round(outcome.slowest_s, 3),
            "grew_mb": engine.peak_mb() - before,
            "seconds": round(time.monotonic() - began, 1),
            "failures": outcome.failures,
        }
    )


def read_batch(name: str, seed: int, examples: int) -> dict[str, Any]:
    """What a batch came to; a process that dies of it is one failure more."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=batch, args=(name, seed, examples, theirs)
    )
    process.start()
    theirs.close()
    try:
        found: dict[str, Any] = ours.recv()
    except EOFError:
        process.join()
        sys.exit(f"{name}, seed {seed}: the process died with {process.exitcode}")
    process.join()
    return found


def keep(name: str, failures: dict[str, bytes]) -> None:
    """Write what failed into the corpus, so that the tests read it from now on."""
    for failure, data in failures.items():
        print(f"  {failure}", file=sys.stderr)
        if len(data) <= _LARGEST:
            path = CORPUS / name.replace(" ", "-") / hashlib.sha256(data).hexdigest()[:12]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def main() -> int:
    """Read batches until there are enough of each kind; the code is 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kind", action="append", choices=list(kinds.kinds()), help="only this one"
    )
    parser.add_argument("--examples", type=int, default=10_000, help="documents of each kind")
    parser.add_argument("--seed", type=int, default=0, help="another one draws other documents")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result, to go on with")
    arguments = parser.parse_args()
    if Path("/dev/shm").is_dir():  # noqa: S108 - archives are unpacked thousands of times
        tempfile.tempdir = tempfile.mkdtemp(prefix="kernforge-fuzz-", dir="/dev/shm")
    path: Path | None = arguments.json
    result: dict[str, Any] = json.loads(path.read_text()) if path and path.is_file() else {}
    if result.get("seed") != arguments.seed:
        result = {"seed": arguments.seed, "kinds": {}}
    result["conditions"] = describe("kernforge", "hypothesis", "pyelftools", "huggingface-hub")
    for name in arguments.kind or kinds.kinds():
        of_kind = result["kinds"].setdefault(name, {"documents": 0, **dict.fromkeys(_COUNTS, 0)})
        while of_kind["documents"] < arguments.examples:
            number = of_kind["documents"] // BATCH
            count = min(BATCH, arguments.examples - of_kind["documents"])
            found = read_batch(name, arguments.seed * 1_000_003 + number, count)
            keep(name, found.pop("failures"))
            _add(of_kind, found)
            print(
                f"{name}: {of_kind['documents']:,} of {arguments.examples:,}, "
                f"{of_kind['untyped']} untyped, {of_kind['hangs']} hangs, "
                f"{of_kind['memory']} above {engine.MEMORY_MB} MB",
                file=sys.stderr,
                flush=True,
            )
            if path:
                result["table"] = table(result["kinds"])
                path.write_text(json.dumps(result, indent=1) + "\n")
    bad = sum(kind[c] for kind in result["kinds"].values() for c in ("untyped", "hangs", "memory"))
    return 1 if bad else 0


def table(found: dict[str, Any]) -> dict[str, Any]:
    """The table of the page of results."""
    return {
        "title": "Documents that are nearly right",
        "head": ["kind", "documents", "read", "refused", "other errors", "hangs", "above 500 MB"],
        "rows": [
            [name, *(f"{kind[count]:,}" for count in ("documents", *_COUNTS))]
            for name, kind in sorted(found.items())
        ],
        "note": "A hang takes more than 10 s. A document that is read in several ways counts as "
        "read where one of them reads it. Drawn by Hypothesis (`make fuzz`).",
    }


def _add(total: dict[str, Any], found: dict[str, Any]) -> None:
    total["documents"] += sum(found[count] for count in _COUNTS)
    for count in _COUNTS:
        total[count] += found[count]
    for peak in ("slowest_s", "grew_mb"):
        total[peak] = max(total.get(peak, 0), found[peak])
    total["seconds"] = round(total.get("seconds", 0) + found["seconds"], 1)


if __name__ == "__main__":
    try:
        code = main()
    finally:
        if tempfile.tempdir and Path(tempfile.tempdir).name.startswith("kernforge-fuzz-"):
            files.remove_tree(Path(tempfile.tempdir))
    sys.exit(code)
