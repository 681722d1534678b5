# SPDX-License-Identifier: Apache-2.0
"""Build community kernels unmodified, and run each one's own tests.

    python scripts/community.py --dir DIR CHECKOUT...               # build, check, test, report
    python scripts/community.py --dir DIR --build-only CHECKOUT...
    python scripts/community.py --dir DIR --test-only               # on another machine
    python scripts/community.py --dir DIR --report-only

A checkout is a directory that holds kernel projects, as huggingface/kernels-community or
``examples/kernels`` of huggingface/kernels do. It is only read. What is built goes to
``DIR/kernels`` together with each kernel's tests, so that this one folder can be carried to a
machine with a GPU; that machine needs torch, pytest and the ``kernels`` client, but no compiler.
A kernel whose project must be refused counts as right when it is refused for the right reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import community_build
import community_test
from community_build import BACKENDS, DEFAULT, Built
from community_test import Tested

HEAD = ["kernel", "variant", "built", "CPU-s", "check", "loads in", "passed/failed/skipped", "why"]


def build(options: argparse.Namespace) -> None:
    """Build the kernels, with a record beside each result."""
    for kernel in community_build.projects(options.checkout, options.only or DEFAULT):
        for backend in options.backend or BACKENDS:
            if backend not in kernel.manifest["general"].get("backends", []):
                continue
            record = community_build.build(kernel, backend, options)
            home = options.dir / "kernels" / kernel.label
            _write(home / f"built-{record.variant}.json", asdict(record))
            print(record.kernel, record.variant, record.built, record.cpu_s, record.why, flush=True)


def test(options: argparse.Namespace) -> None:
    """Test the variants for this machine, with a record beside each result."""
    built = [record for record, _ in records(options.dir)]
    for record in built:
        wanted = not options.only or record.kernel.split("/")[1] in options.only
        wanted = wanted and record.backend in (options.backend or BACKENDS)
        if not wanted or not record.built or record.expected_failure:
            continue
        done = community_test.test(record, built, options.dir.resolve(), options.limit_s)
        print(done.kernel, done.variant, done.counts, done.why, flush=True)
        if done.loads:
            home = options.dir / "kernels" / done.kernel
            _write(home / f"tested-{record.variant}.json", asdict(done))


def records(directory: Path) -> list[tuple[Built, Tested | None]]:
    """The records of all variants, with those of their tests."""
    found = []
    for path in sorted(directory.glob("kernels/*/*/built-*.json")):
        built = Built(**json.loads(path.read_text()))
        after = path.with_name(path.name.replace("built-", "tested-"))
        tested = Tested(**json.loads(after.read_text())) if after.is_file() else None
        found.append((built, tested))
    return found


def good(built: Built, tested: Tested | None) -> bool:
    """Whether a kernel is as it should be, as far as this machine could tell."""
    if built.expected_failure:
        return True
    fine = tested is None or (tested.failed == 0 and all(tested.loads.values()))
    return built.built and built.check == "clean" and fine


def row(built: Built, tested: Tested | None) -> list[str]:
    """One line for a person."""
    outcome = "refused, rightly" if built.expected_failure else "yes" if built.built else "no"
    loads = ", ".join(k for k, v in tested.loads.items() if v) if tested else ""
    counts = tested.counts if tested else "not run" if built.built else ""
    why = (built.why or (tested.why if tested else ""))[:100]
    return [
        *(built.kernel, built.variant, outcome, f"{built.cpu_s:.0f}"),
        *(built.check, loads, counts, why),
    ]


def report(options: argparse.Namespace) -> bool:
    """Print the table, write the JSON, and say whether all is as it should be."""
    found = records(options.dir)
    rows = [row(*one) for one in found]
    widths = [max(len(line[i]) for line in (HEAD, *rows)) for i in range(len(HEAD))]
    for line in (HEAD, *rows):
        print("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip())
    right = sum(good(*one) for one in found)
    print(f"{right} of {len(found)} are as they should be")
    if options.json:
        table = {
            "title": "Other people's kernels, unmodified",
            "head": HEAD,
            "rows": rows,
            "note": "Counts are tests of the kernel's own, or comparisons with references where it "
            "has none (`tests/community/references.py`). By `scripts/community.py`.",
        }
        hosts = sorted({tested.host for _, tested in found if tested})
        sources = {path.name: _commit(path) for path in options.checkout}
        _write(options.json, {"machine": {"hosts": hosts, "sources": sources}, "table": table})
    return right == len(found)


def _commit(checkout: Path) -> str:
    argv = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def _write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


def main() -> None:
    """Build, test and report; the exit code is 1 if a kernel is not as it should be."""
    options = _arguments()
    options.dir.mkdir(parents=True, exist_ok=True)
    if not options.test_only and not options.report_only:
        build(options)
    if not options.build_only and not options.report_only:
        test(options)
    sys.exit(0 if report(options) else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, nargs="*", help="directories of kernel projects")
    parser.add_argument("--dir", type=Path, required=True, help="where results go")
    step = parser.add_mutually_exclusive_group()
    step.add_argument("--build-only", action="store_true")
    step.add_argument("--test-only", action="store_true")
    step.add_argument("--report-only", action="store_true")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="a name or a pattern instead of the default list; '*' takes all; may be repeated",
    )
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="default: both")
    parser.add_argument("--torch", type=_version, default=(2, 13), help="default: 2.13")
    parser.add_argument("--cuda", type=_version, default=(13, 0), help="default: 13.0")
    parser.add_argument("--arch", action="append", default=[], help="only for this GPU, as 9.0")
    parser.add_argument("--limit-s", type=int, default=900, help="for each build and test run")
    parser.add_argument("--json", type=Path, help="also write the outcome here")
    return parser.parse_args()


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


if __name__ == "__main__":
    main()
