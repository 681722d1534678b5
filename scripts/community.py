# SPDX-License-Identifier: Apache-2.0
"""Build other people's kernels unmodified and let each one's own tests pass.

    python scripts/community.py --dir DIR CHECKOUT...           # build, check, test, report
    python scripts/community.py --dir DIR --build-only CHECKOUT...
    python scripts/community.py --dir DIR --test-only           # on another machine

A checkout is a directory that holds kernel projects, as huggingface/kernels-community or
``examples/kernels`` of huggingface/kernels do. It is only read. What is built goes to
``DIR/kernels`` together with each kernel's tests, so that this one folder can be carried to a
machine with a GPU; that machine needs torch, pytest and the ``kernels`` client, but no compiler.
A kernel whose project must be refused counts as passed when it is refused for the right reason.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.host import probe
from kernforge.resolve import resolve
from kernforge.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEFAULT = """
    relu activation rmsnorm quantization-bitsandbytes quantization-gptq rotary tinygrad-rms einops
    liger-kernels triton-kernels rwkv mra deformable-detr yoso cv-utils punica-sgmv causal-conv1d
    extra-data relu-archs-subset relu-compiler-flags relu-invalid-capability relu-torch-bounds
    relu-torch-stable-abi relu-tvm-ffi cpp20-symbols symbol-conflicts symbol-conflicts2
    silu-and-mul-bad-registration cutlass-gemm
""".split()
# What a project is there to show when it is not that it builds and passes its tests.
BACKENDS = ("cpu", "cuda")
MUST_FAIL = {
    "relu-invalid-capability": ("cuda", "empty set of capabilities"),
    "silu-and-mul-bad-registration": (None, "add_op_namespace_prefix"),
}
EXACT_ARCHS = {"relu-archs-subset": ["7.5", "8.0", "9.0"]}
LOADERS = {
    "kernforge": "import kernforge as k; print(k.get_kernel({repo!r}, version={version}).__name__)",
    "kernels": "import kernels as k; print(k.get_kernel({repo!r}, version={version}).__name__)",
}
ROOT = Path(__file__).parents[1]
MARKERS = "[pytest]\nmarkers =\n    kernels_ci: chosen by the project's own CI\n"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A project of a checkout."""

    label: str
    source: Path
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """The folder's name, by which a person asks for it."""
        return self.source.name


@dataclass(kw_only=True)
class Built:
    """How the build of one variant went; kept beside it."""

    kernel: str
    variant: str
    python_name: str
    repo_id: str
    version: int
    built: bool = False
    expected_failure: bool = False
    cpu_s: float = 0.0
    wall_s: float = 0.0
    archs: list[str] = field(default_factory=list)
    check: str = ""
    why: str = ""


@dataclass(kw_only=True)
class Tested:
    """How loading and testing one variant went."""

    kernel: str
    variant: str
    loads: dict[str, bool] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    wall_s: float = 0.0
    why: str = ""


# -- building ----------------------------------------------------------------------------------


def projects(checkouts: Sequence[Path], wanted: Sequence[str]) -> Iterator[Kernel]:
    """Projects of the checkouts whose names match, in the order in which they are wanted."""
    found = [path.parent for one in checkouts for path in sorted(one.glob("*/build.toml"))]
    seen = set()
    for pattern in wanted:
        for source in found:
            label = f"{source.parent.name}/{source.name}"
            if label not in seen and fnmatch.fnmatch(source.name, pattern):
                seen.add(label)
                manifest = tomllib.loads((source / "build.toml").read_text())
                yield Kernel(label=label, source=source, manifest=manifest)


def build(kernel: Kernel, backend: str, options: argparse.Namespace) -> Built:
    """Build the variant of a backend that fits the options, and check it."""
    general = kernel.manifest["general"]
    name = general["name"]
    record = Built(
        kernel=kernel.label,
        variant=backend,
        python_name=name.replace("-", "_"),
        repo_id=general.get("hub", {}).get("repo-id", f"kernels-community/{name}"),
        version=general.get("version", 1),
    )
    project = _copied(kernel, options.dir)
    code, listed, said = _kernforge("variants", str(project), "--json")
    if code:
        record.why = said
        return record
    record.variant = _pick(listed[0], backend, options)
    if not record.variant:
        reasons = [v["reason"] for v in listed[0] if backend in v["name"] and not v["builds"]]
        record.variant, record.why = backend, "; ".join(dict.fromkeys(reasons)) or "no variant"
        return record
    into = options.dir / "kernels" / kernel.label
    argv = ["build", str(project), "--variant", record.variant, "--json", "--out", f"{into}/build"]
    if options.arch and backend == "cuda" and kernel.name not in {*EXACT_ARCHS, *MUST_FAIL}:
        argv += [part for arch in options.arch for part in ("--arch", arch)]
    start = time.monotonic()
    code, documents, said = _kernforge(*argv, limit_s=options.limit_s)
    record.wall_s = round(time.monotonic() - start, 1)
    _keep_lock(project, options.dir)
    outcome = documents[0] if documents and "actions" in documents[0] else {}
    record.cpu_s = round(outcome.get("actions", {}).get("cpu_s", 0.0), 1)
    findings = outcome.get("findings", [])
    errors = [f for f in findings if f["severity"] == "error"]
    record.built = bool(outcome.get("variants"))
    record.check = f"{len(errors)} errors" if errors else "clean" if record.built else ""
    record.why = (errors[0]["message"] if errors else said) if code else ""
    _judge(kernel, backend, record, into / "build" / record.variant)
    if (project / "tests").is_dir() and record.built:
        shutil.copytree(project / "tests", into / "tests", dirs_exist_ok=True)
    return record


def _judge(kernel: Kernel, backend: str, record: Built, variant: Path) -> None:
    """Hold what came out against what the project is there to show."""
    only, text = MUST_FAIL.get(kernel.name, (None, None))
    if text and only in {None, backend}:
        record.expected_failure = text in record.why
        if not record.why:
            record.why = f"was not refused with {text!r}"
    if record.built:
        metadata = json.loads((variant / "metadata.json").read_text())
        record.archs = metadata["backend"].get("archs") or []
        wanted = EXACT_ARCHS.get(kernel.name)
        if wanted and backend == "cuda" and record.archs != wanted:
            record.built, record.why = False, f"architectures {record.archs}, not {wanted}"


def _copied(kernel: Kernel, into: Path) -> Path:
    """A copy of the project to build from, so that the checkout stays as it is."""
    project = into / "work" / kernel.label
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(kernel.source, project, ignore_dangling_symlinks=True)
    if (into / "kernforge.lock").is_file():  # one lock serves them all
        shutil.copy(into / "kernforge.lock", project)
    return project


def _keep_lock(project: Path, into: Path) -> None:
    if (project / "kernforge.lock").is_file():
        shutil.copy(project / "kernforge.lock", into)


def _pick(variants: list[dict[str, Any]], backend: str, options: argparse.Namespace) -> str:
    """The variant of a backend for the wanted torch and CUDA, else the newest of that backend."""
    names = []
    for one in variants:
        if not one["builds"]:
            continue
        variant = Variant.parse(one["name"])
        if variant.backend.name == backend and variant.backend.version in {None, options.cuda}:
            names.append((variant, one["name"]))
    exact = [n for v, n in names if v.framework != "torch" or v.version == options.torch]
    return next(iter(exact), names[-1][1] if names else "")


def _kernforge(*argv: str, limit_s: float = 120) -> tuple[int, list[Any], str]:
    """Run a command; its exit code, its JSON documents, and in words what went wrong."""
    # What it inherits is the user's own environment; src makes it this checkout's kernforge.
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "kernforge", *argv]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # kernforge ends its compilers and leaves nothing half-written
            process.communicate()
            return 1, [], f"stopped after {limit_s:.0f} s"
    documents = list(_documents(out))
    failures = [f for d in documents if isinstance(d, dict) for f in d.get("failures", [])]
    said = [f"{f['action']}: {_first_error(f['output'])}" for f in failures]
    said += [d["message"] for d in documents if isinstance(d, dict) and "error" in d]
    return process.returncode, documents, next(iter(said), "")


def _documents(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        document, at = decoder.raw_decode(text, at)
        yield document
        at += len(text[at:]) - len(text[at:].lstrip())


def _first_error(output: str) -> str:
    lines = output.splitlines()
    return next((line.strip() for line in lines if "error" in line), lines[-1] if lines else "")


# -- testing -----------------------------------------------------------------------------------


def test(record: Built, everything: Sequence[Built], options: argparse.Namespace) -> Tested:
    """Load a variant with both loaders and run the kernel's own tests, in fresh processes."""
    result = Tested(kernel=record.kernel, variant=record.variant)
    home = options.dir.resolve() / "kernels" / record.kernel
    decision = resolve([record.variant], probe()).decisions[0]
    if not decision.accepted:
        result.why = f"not run here: {decision.reason}"
        return result
    env = _environment(record, everything, options.dir.resolve())
    for loader, program in LOADERS.items():
        script = program.format(repo=record.repo_id, version=record.version)
        done = _python(["-c", script], home, env, options.limit_s)
        result.loads[loader] = done.returncode == 0
        if done.returncode and not result.why:
            result.why = f"{loader}: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
    if not (home / "tests").is_dir():
        result.why = result.why or "has no tests of its own"
        return result
    (home / "pytest.ini").write_text(MARKERS)
    report = home / "report.xml"
    report.unlink(missing_ok=True)
    argv = ["-m", "pytest", "-q", "-c", "pytest.ini", f"--junitxml={report}", "tests"]
    start = time.monotonic()
    done = _python([*argv, "-p", "no:cacheprovider"], home, env, options.limit_s)
    result.wall_s = round(time.monotonic() - start, 1)
    (home / "tests.log").write_text(done.stdout + done.stderr)
    if report.is_file():
        _count(result, report)
    elif not result.why:
        result.failed, result.why = 1, f"pytest ended with {done.returncode}"
    return result


def _environment(record: Built, everything: Sequence[Built], root: Path) -> dict[str, str]:
    """Makes ``import <python name>`` and ``get_kernel(<repo id>)`` find what was built."""
    shim = root / "shim" / record.kernel
    shutil.rmtree(shim, ignore_errors=True)
    shim.mkdir(parents=True)
    (shim / record.python_name).symlink_to(root / "kernels" / record.kernel / "build" / record.variant)
    local = {r.repo_id: root / "kernels" / r.kernel / "build" for r in everything if r.built}
    paths = [str(shim), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": ":".join(filter(None, paths)),
        "LOCAL_KERNELS": ":".join(f"{repo}={path}" for repo, path in local.items()),
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # a variant holds what its digest covers and no more
    }


def _python(
    argv: list[str], cwd: Path, env: dict[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    command = ["timeout", str(limit_s), sys.executable, *argv]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def _count(result: Tested, report: Path) -> None:
    suite = ET.parse(report).getroot()[0]  # noqa: S314 - pytest wrote it just now
    count = {n: int(suite.get(n, "0")) for n in ("tests", "failures", "errors", "skipped")}
    result.failed = count["failures"] + count["errors"]
    result.skipped = count["skipped"]
    result.passed = count["tests"] - result.failed - result.skipped
    for kind in ("failure", "error", "skipped"):
        for one in suite.iter(kind):
            words = (one.get("message") or one.text or kind).strip().splitlines()
            result.why = result.why or (words[0] if words else kind)[:200]


# -- reporting ---------------------------------------------------------------------------------


def table(built: Sequence[Built], tested: Sequence[Tested]) -> tuple[list[list[str]], int]:
    """Rows for a person, and how many are not as they should be."""
    results = {(t.kernel, t.variant): t for t in tested}
    rows, wrong = [], 0
    for one in built:
        done = results.get((one.kernel, one.variant))
        good = one.expected_failure or (
            one.built and one.check == "clean" and not (done and (done.failed or not all(done.loads.values())))
        )
        wrong += not good
        loads = ", ".join(name for name, good in done.loads.items() if good) if done else ""
        tests = f"{done.passed}/{done.failed}/{done.skipped}" if done and done.wall_s else ""
        outcome = "refused, as it must be" if one.expected_failure else "yes" if one.built else "no"
        why = one.why or (done.why if done else "")
        rows.append([one.kernel, one.variant, outcome, f"{one.cpu_s:.0f}", one.check, loads, tests, why[:90]])
    return rows, wrong


def _records(directory: Path) -> list[Built]:
    paths = sorted(directory.glob("kernels/*/*/built-*.json"))
    return [Built(**json.loads(path.read_text())) for path in paths]


def main() -> None:
    """Do what was asked; exit 1 when something is not as it should be."""
    options = _arguments()
    options.dir.mkdir(parents=True, exist_ok=True)
    if not options.test_only and not options.report_only:
        for kernel in projects(options.checkout, options.only or (["*"] if options.all else DEFAULT)):
            for backend in options.backend or BACKENDS:
                if backend not in kernel.manifest["general"].get("backends", []):
                    continue
                record = build(kernel, backend, options)
                path = options.dir / "kernels" / kernel.label / f"built-{backend}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(asdict(record), indent=2) + "\n")
                print(record.kernel, record.variant, record.built, record.cpu_s, record.why, flush=True)
    built = _records(options.dir)
    if not options.build_only and not options.report_only:
        backend = probe().backend.name
        tested = []
        for record in built:
            chosen = not options.only or record.kernel.partition("/")[2] in options.only
            if record.built and chosen:
                done = test(record, built, options)
                print(done.kernel, done.variant, done.passed, done.failed, done.skipped, done.why, flush=True)
                if done.loads:
                    tested.append(asdict(done))
        (options.dir / f"tested-{backend}.json").write_text(json.dumps(tested, indent=2) + "\n")
    tested = [
        Tested(**one)
        for path in sorted(options.dir.glob("tested-*.json"))
        for one in json.loads(path.read_text())
    ]
    rows, wrong = table(built, tested)
    head = ["kernel", "variant", "built", "CPU-s", "check", "loads in", "passed/failed/skipped", "why"]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"{len(rows) - wrong} of {len(rows)} are as they should be")
    if options.json:
        document = {"built": [asdict(b) for b in built], "tested": [asdict(t) for t in tested]}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    sys.exit(1 if wrong else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, nargs="*", help="directories of kernel projects")
    parser.add_argument("--dir", type=Path, required=True, help="where results go")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--test-only", action="store_true")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--only", action="append", default=[], help="this kernel; may be repeated")
    parser.add_argument("--all", action="store_true", help="every kernel of the checkouts")
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
