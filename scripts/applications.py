# SPDX-License-Identifier: Apache-2.0
"""Run transformers and diffusers on kernforge, and on the hub's client ``kernels``.

    python scripts/applications.py --json benchmarks/results/applications.json
    python scripts/applications.py --device cuda --only transformers==5.24.0   # with a GPU

Each library is taken from the package index into a directory of its own, beside the torch that is
installed here. Models have random weights; what they compute without and with kernels is compared
with the same model in float32 (``applications_program.py``). The kernels are this repository's
layer-norm and moe, from a registry that is written here, and an attention by torch's operators,
which counts its calls: it stands for the hub's flash-attn2, which needs a network, and has its id.
The last line is ``applications: P of Q as they should be``, and the exit code 1 if these differ.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(__file__).with_name("applications_program.py")
KERNELS = ("layer-norm", "moe")
# Beside torch, which is not installed again.
NEEDS = ("safetensors", "tokenizers", "regex", "accelerate", "typer", "huggingface_hub", "filelock")
ATTENTION_IDS = {"kernforge/attention": "1.0.0", "kernels-community/flash-attn2": "3.0.0"}
MANIFEST = """\
[general]
name = "attention"
version = 1
license = "Apache-2.0"
backends = ["cpu", "cuda"]
edition = 5

[torch-noarch]
"""
ATTENTION = '''\
"""Attention by torch's operators under the names of flash-attn; it counts its calls."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from . import flash_attn_interface

_calls = 0


def calls():
    return _calls


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, **_others):
    global _calls
    _calls += 1
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=softmax_scale, enable_gqa=True
    )
    return out.transpose(1, 2)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, *_sizes, **options):
    pairs = zip(cu_seqlens_q.tolist(), cu_seqlens_k.tolist(), strict=True)
    starts = list(pairs)
    parts = [
        flash_attn_func(q[None, a:c], k[None, b:d], v[None, b:d], **options)[0]
        for (a, b), (c, d) in zip(starts, starts[1:], strict=False)
    ]
    return torch.cat(parts)
'''
INTERFACE = """\
# The names that diffusers looks up; it calls them on several GPUs alone.
_flash_attn_forward = _flash_attn_backward = None
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One library with one client.

    Attributes:
        library: its requirement, such as ``transformers==5.23.0``.
        client: the package behind ``import kernels``: ``kernforge`` or ``kernels``.
        claimed: the version of ``kernels`` that is claimed or installed.
        dtype: of the model.
    """

    library: str
    client: str
    claimed: str
    dtype: str


RUNS = (
    Run("transformers==5.24.0", "kernforge", "0.18.2", "float32"),
    Run("transformers==5.24.0", "kernforge", "0.18.2", "bfloat16"),
    Run("transformers==5.21.1", "kernels", "0.17.2", "bfloat16"),
    Run("diffusers==0.42.1", "kernforge", "0.17.2", "bfloat16"),
    Run("diffusers==0.42.1", "kernels", "0.17.2", "bfloat16"),
)


def kernforge(*arguments: object) -> None:
    """Run one of our commands; its errors are shown."""
    argv = [sys.executable, "-m", "kernforge", *map(str, arguments)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def publish(registry: Path, work: Path, *, device: str, built: Path | None) -> None:
    """Write a registry with the kernels that the program uses."""
    for name in KERNELS:
        project, build = ROOT / "kernels" / name, work / name
        if built:
            build = built / name
        else:
            pattern = "*-cpu-*" if device == "cpu" else "*-cu130-*"
            kernforge("build", project, "--build-dir", build, "--variant", pattern)
        kernforge(
            *("publish", project, build, "--registry", registry),
            *("--repo-id", f"kernforge/{name}"),
        )
    package = work / "attention" / "torch-ext" / "attention"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(ATTENTION)
    (package / "flash_attn_interface.py").write_text(INTERFACE)
    for repo_id, version in ATTENTION_IDS.items():
        manifest = MANIFEST.replace("version = 1", f"version = {version.partition('.')[0]}")
        (work / "attention" / "build.toml").write_text(manifest)
        kernforge("build", work / "attention")
        kernforge(
            *("publish", work / "attention", "--registry", registry),
            *("--repo-id", repo_id, "--version", version),
        )


def site(directory: Path, library: str) -> Path:
    """A directory with a library from the index and its dependencies besides torch."""
    target = directory / library.replace("==", "-")
    if not target.exists():
        argv = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target"]
        subprocess.run([*argv, str(target), library, *NEEDS], check=True)
    return target


def run(one: Run, *, place: Path, registry: Path, device: str, work: Path) -> dict[str, Any]:
    """The document of the program, or its error."""
    out = work / "result.json"
    out.unlink(missing_ok=True)
    name = one.library.partition("==")[0]
    argv = [sys.executable, str(PROGRAM), name, device, one.dtype, str(out)]
    path = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    if one.client == "kernforge":
        before = [sys.executable, "-m", "kernforge", "run", f"--as-kernels={one.claimed}", "--"]
        argv = [*before, *argv]
        path.insert(0, str(ROOT / "src"))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "KERNFORGE_REGISTRY": str(registry),
        "KERNELS_CACHE": str(registry),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(work / "hf"),
        "DIFFUSERS_TRUST_REMOTE_KERNELS": "true",
    }
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or not out.exists():
        lines = done.stderr.strip().splitlines()
        return {"library": name, "client": one.client, "error": lines[-1] if lines else "no reason"}
    found: dict[str, Any] = json.loads(out.read_text())
    if found["answered_by"] != one.client:
        return {"library": name, "client": one.client, "error": f"{found['answered_by']} answered"}
    return found


def row(one: dict[str, Any]) -> list[str]:
    """A line of the table that the documentation shows."""
    found = one["rows"]
    worst = max(found, key=lambda each: each["error"])
    return [
        f"{one['library']} {one['version']}",
        f"{one['answered_by']} as {one['kernels']}",
        f"{one['device']}, {one['dtype']}",
        ", ".join(dict.fromkeys(each["model"] for each in found)),
        f"{sum(each['passed'] for each in found)} of {len(found)}",
        str(sum(sum(each["replaced"].values()) for each in found)),
        f"{worst['error']:.1e} ({worst['error_without']:.1e})",
    ]


def main() -> None:
    """Run the libraries, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="results; lines of other runs stay in it")
    parser.add_argument("--only", action="append", default=[], help="a library; may be repeated")
    parser.add_argument("--site", type=Path, help="directory of libraries, kept for the next run")
    parser.add_argument("--built", type=Path, metavar="DIR", help="builds by kernel's name")
    arguments = parser.parse_args()
    chosen = [one for one in RUNS if not arguments.only or one.library in arguments.only]
    if not chosen:
        libraries = sorted({one.library for one in RUNS})
        parser.error(f"--only {arguments.only}: there are {', '.join(libraries)}")
    results = []
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        registry = work / "registry"
        publish(registry, work, device=arguments.device, built=arguments.built)
        for one in chosen:
            place = site(arguments.site or work / "site", one.library)
            found = run(one, place=place, registry=registry, device=arguments.device, work=work)
            results.append(found)
            what = found.get("error") or [each["passed"] for each in found["rows"]]
            print(f"{one.library}, {one.client} {one.claimed}, {one.dtype}: {what}", flush=True)
    whole = [one for one in results if "rows" in one]
    if arguments.json:
        write(arguments.json, whole)
    rows = [each for one in whole for each in one["rows"]]
    passed = sum(each["passed"] for each in rows)
    total = len(rows) + len(results) - len(whole)
    print(f"applications: {passed} of {total} as they should be")
    sys.exit(0 if passed == total else 1)


def write(path: Path, results: list[dict[str, Any]]) -> None:
    """Replace a table's lines of the same library, client and machine."""
    document = json.loads(path.read_text())
    rows = {tuple(line[:3]): line for line in document["table"]["rows"]}
    rows |= {tuple(line[:3]): line for line in map(row, results)}
    document["table"]["rows"] = sorted(rows.values())
    document["machine"]["date"] = dt.datetime.now(tz=dt.UTC).date().isoformat()
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
