# SPDX-License-Identifier: Apache-2.0
"""Read thousands of nearly valid documents of each untrusted format: ``make fuzz``.

    python scripts/run_fuzz.py                                     # 10,000 of each kind
    python scripts/run_fuzz.py --kind ELF --seed 7 --examples 500  # some of one kind

A process reads a batch of 1,000, and may take 500 MB more than at its start. Documents that fail
are written to ``tests/fuzz/corpus``, which the tests read again.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from fuzz import engine, kinds  # noqa: E402 - after the path

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
BATCH = 1000
LARGEST = 100_000
"""Bytes of a document that may go into the corpus."""


def read(name: str, seed: int, examples: int, results: Any) -> None:
    """Read one batch in this process."""
    engine.limit_memory()
    outcome = engine.Outcome()
    engine.run(kinds.kinds()[name], examples=examples, seed=seed, outcome=outcome)
    results.send(outcome)


def read_batch(name: str, seed: int, examples: int) -> engine.Outcome:
    """Read one batch in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=read, args=(name, seed, examples, sender))
    process.start()
    sender.close()
    try:
        outcome: engine.Outcome = receiver.recv()
    except EOFError:
        process.join()
        sys.exit(f"{name}, seed {seed}: the process died with {process.exitcode}")
    process.join()
    return outcome


def store(name: str, failures: dict[str, bytes]) -> None:
    """Write documents that failed into the corpus."""
    for failure, data in failures.items():
        print(f"  {failure}")
        if len(data) <= LARGEST:
            path = CORPUS / name.replace(" ", "-") / hashlib.sha256(data).hexdigest()[:12]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def main() -> int:
    """Read enough batches of each kind; the exit code is 1 if a document failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = list(kinds.kinds())
    parser.add_argument("--kind", action="append", choices=names, help="only this one")
    parser.add_argument("--examples", type=int, default=10_000, help="documents of each kind")
    parser.add_argument("--seed", type=int, default=0, help="another one draws other documents")
    arguments = parser.parse_args()
    failed = 0
    shared = Path("/dev/shm")  # noqa: S108 - archives are unpacked thousands of times
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as scratch:
        tempfile.tempdir = scratch
        for name in arguments.kind or names:
            accepted = refused = 0
            for number, done in enumerate(range(0, arguments.examples, BATCH)):
                count = min(BATCH, arguments.examples - done)
                outcome = read_batch(name, arguments.seed * 1_000_003 + number, count)
                store(name, outcome.failures)
                accepted, refused = accepted + outcome.read, refused + outcome.refused
                failed += outcome.untyped + outcome.hangs + outcome.memory
            print(f"{name}: {accepted:,} accepted, {refused:,} refused", flush=True)
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
