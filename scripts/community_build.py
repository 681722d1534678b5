# SPDX-License-Identifier: Apache-2.0
"""The first half of ``community.py``: build and check projects of a checkout, unmodified."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.artifact.variant import Variant

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[1]
REFERENCES = ROOT / "tests" / "community" / "references.py"
BACKENDS = ("cpu", "cuda")
DEFAULT = (
    *("relu", "activation", "rmsnorm", "quantization-bitsandbytes", "quantization-gptq"),
    *("rotary", "tinygrad-rms", "einops", "liger-kernels", "triton-kernels", "rwkv", "mra"),
    *("deformable-detr", "yoso", "cv-utils", "punica-sgmv", "causal-conv1d", "extra-data"),
    *("relu-archs-subset", "relu-compiler-flags", "relu-invalid-capability"),
    *("relu-torch-bounds", "relu-torch-stable-abi", "relu-tvm-ffi", "cpp20-symbols"),
    *("symbol-conflicts", "symbol-conflicts2", "silu-and-mul-bad-registration", "cutlass-gemm"),
)
# Projects whose build must fail, by their backend and the error.
MUST_FAIL = {
    "relu-invalid-capability": ("cuda", "empty set of capabilities"),
    "silu-and-mul-bad-registration": (None, "add_op_namespace_prefix"),
}
EXACT_ARCHS = {"relu-archs-subset": ["7.5", "8.0", "9.0"]}


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
    """The result of building one variant; stored beside it."""

    kernel: str
    backend: str
    variant: str
    python_name: str
    repo_id: str
    version: int
    built: bool = False
    expected_failure: bool = False
    cpu_s: float = 0.0
    archs: list[str] = field(default_factory=list)
    check: str = ""
    why: str = ""


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
        backend=backend,
        variant=backend,
        python_name=name.replace("-", "_"),
        repo_id=general.get("hub", {}).get("repo-id", f"kernels-community/{name}"),
        version=general.get("version", 1),
    )
    project = _copied(kernel, options.dir)
    code, listed, said = _kernforge("build", "--list", str(project), "--json")
    if code:
        record.why = said
        return record
    record.variant = _pick(listed[0], backend, options)
    if not record.variant:
        reasons = [v["reason"] for v in listed[0] if backend in v["name"] and not v["builds"]]
        record.variant, record.why = backend, "; ".join(dict.fromkeys(reasons)) or "no variant"
        return record
    into = options.dir / "kernels" / kernel.label
    argv = ["build", "--untrusted", str(project), "--json"]
    argv += ["--variant", record.variant, "--build-dir", f"{into}/build"]
    if options.arch and backend == "cuda" and kernel.name not in {*EXACT_ARCHS, *MUST_FAIL}:
        argv += [part for arch in options.arch for part in ("--arch", arch)]
    code, documents, said = _kernforge(*argv, limit_s=options.limit_s)
    _keep_lock(project, options.dir)
    outcome = documents[0] if documents and "actions" in documents[0] else {}
    record.cpu_s = round(outcome.get("actions", {}).get("cpu_s", 0.0), 1)
    findings = outcome.get("findings", [])
    errors = [f for f in findings if f["severity"] == "error"]
    record.built = bool(outcome.get("variants"))
    record.check = f"{len(errors)} errors" if errors else "clean" if record.built else ""
    record.why = (errors[0]["message"] if errors else said) if code else ""
    _judge(kernel, backend, record, into / "build" / record.variant)
    if record.built:
        _copy_tests(project, into)
    return record


def _copy_tests(project: Path, into: Path) -> None:
    """The project's tests, or comparisons with references where it has none."""
    if (project / "tests").is_dir():
        shutil.copytree(project / "tests", into / "tests", dirs_exist_ok=True)
        return
    (into / "tests").mkdir(parents=True, exist_ok=True)
    shutil.copy(REFERENCES, into / "tests" / "test_references.py")
    if (project / "benchmarks").is_dir():  # has references for its own workloads
        shutil.copytree(project / "benchmarks", into / "benchmarks", dirs_exist_ok=True)


def _judge(kernel: Kernel, backend: str, record: Built, variant: Path) -> None:
    """Compare the result with the purpose of the project."""
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
    """Run a command; its exit code, its JSON documents, and its error."""
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
