# SPDX-License-Identifier: Apache-2.0
"""Read thousands of nearly right documents of each untrusted kind.

    python scripts/run_fuzz.py                                     # 10,000 of each kind
    python scripts/run_fuzz.py --kind ELF --seed 7 --examples 500  # some of one kind

Each batch of 1,000 is read in a process of its own, which may take 500 MB more than at its start.
What failed is written to ``tests/fuzz/corpus``, which the tests read again.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from fuzz import engine, kinds  # noqa: E402 - after the path

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
BATCH = 1000
_LARGEST = 100_000  # bytes of a document that is kept


def read_batch(name: str, seed: int, examples: int) -> engine.Outcome:
    """Read one batch, in a process of its own."""
    kind = kinds.kinds()[name]
    engine.limit_memory()
    outcome = engine.Outcome()
    engine.run(kind, examples=examples, seed=seed, outcome=outcome)
    return outcome


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
    arguments = parser.parse_args()
    fork, failed = multiprocessing.get_context("fork"), False
    for name in arguments.kind or kinds.kinds():
        for first in range(0, arguments.examples, BATCH):
            seed = arguments.seed * 1_000_003 + first // BATCH
            count = min(BATCH, arguments.examples - first)
            with ProcessPoolExecutor(1, mp_context=fork) as pool:
                outcome = pool.submit(read_batch, name, seed, count).result()
            print(
                f"{name}: {first + count:,} documents, the last {count:,}: {outcome.read} read, "
                f"{outcome.refused} refused, the slowest in {outcome.slowest_s:.1f} s",
                flush=True,
            )
            keep(name, outcome.failures)
            failed = failed or bool(outcome.failures)
    return int(failed)


if __name__ == "__main__":
    if Path("/dev/shm").is_dir():  # noqa: S108 - archives are unpacked thousands of times
        with tempfile.TemporaryDirectory(prefix="kernforge-fuzz-", dir="/dev/shm") as place:
            tempfile.tempdir = place
            sys.exit(main())
    sys.exit(main())
