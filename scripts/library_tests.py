# SPDX-License-Identifier: Apache-2.0
r"""Run the tests of transformers and diffusers that concern ``kernels``, with the client and with kernforge.

    python scripts/library_tests.py diffusers --version 0.40.0.dev0 --checkout DIR --client DIR
    python scripts/library_tests.py transformers --version 5.23.0 --checkout DIR --client DIR \
        --library DIR --claim 0.18.2 --json benchmarks/results/library-tests.json

The tests are not in what the package index has: ``--checkout`` is a checkout of the library's
repository, ``--library`` where the library itself is, if not in the checkout's ``src``, and
``--client`` where `kernels` is installed (``pip install --target DIR``). Kernels
that the tests load come from a registry that is written here: attentions by torch's operators, under
the names that the tests ask for. What counts are the tests that pass with the client in the same
conditions. With ``--claim`` the client runs under that version, which changes nothing but what it
says it is. The last line is ``library tests: P of Q pass``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from applications import MANIFEST, kernforge

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from support.client_kernels import both  # noqa: E402 - of the line above
from support.hub_server import HubServer  # noqa: E402

LIMIT_S = 400
ATTENTION = '''\
"""Attention by torch's operators under the names of flash-attn."""

from torch.nn.functional import scaled_dot_product_attention

from . import flash_attn_interface


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, **_others):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=softmax_scale, enable_gqa=True
    )
    return out.transpose(1, 2)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, *_sizes, **options):
    """Sequences of one length, as those of a batch without padding."""
    batch = cu_seqlens_q.numel() - 1
    q, k, v = (t.unflatten(0, (batch, -1)) for t in (q, k, v))
    return flash_attn_func(q, k, v, **options).flatten(0, 1)
'''
INTERFACE = '''\
"""The names that diffusers looks up; it calls them on several GPUs alone."""


def _unused(*_arguments, **_options):
    raise NotImplementedError


_flash_attn_forward = _flash_attn_backward = _unused
_wrapped_flash_attn_forward = _wrapped_flash_attn_backward = _unused
_wrapped_flash_attn_varlen_forward = _wrapped_flash_attn_varlen_backward = _unused
'''


NORM = """\
import torch
from torch import nn


class LlamaRMSNorm(nn.Module):
    can_torch_compile = True

    def forward(self, hidden_states):
        exact = hidden_states.float()
        mean = exact.pow(2).mean(-1, keepdim=True)
        normed = exact * torch.rsqrt(mean + self.variance_epsilon)
        return self.weight * normed.to(hidden_states.dtype)
"""
ROTARY = """\
import torch


def _turned(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply_rotary_transformers(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + _turned(q) * sin, k * cos + _turned(k) * sin
"""
FLASH = {"__init__.py": ATTENTION, "flash_attn_interface.py": INTERFACE}
MODEL = "unsloth/Llama-3.2-1B-Instruct"
# A small model of random weights in the hub's cache, under the id of the one that tests load.
WRITE_MODEL = """
import sys
from pathlib import Path
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
place, commit = Path(sys.argv[1]), "0" * 40
(place / "refs").mkdir(parents=True)
(place / "refs" / "main").write_text(commit)
words = {"<unk>": 0, "Hello": 1}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, "<unk>")))
config = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
    num_hidden_layers=2, vocab_size=32,
)
for each in (tokenizer, LlamaForCausalLM(config)):
    each.save_pretrained(place / "snapshots" / commit)
"""


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of a library.

    Attributes:
        tests: the file in its repository.
        chosen: what of it, as pytest's ``-k``.
        kernels: versions and files of what the tests load, by id.
        model: whether they load ``MODEL``.
        on_hub: those that need a hub, as pytest's ``-k``; they run with one on this machine.
    """

    tests: str
    chosen: str
    kernels: dict[str, tuple[str, dict[str, str]]]
    model: bool = False
    on_hub: str = ""


SUITES = {
    "transformers": Suite(
        "tests/kernels/test_kernels.py",
        "",
        {
            "kernels-community/flash-attn2": ("4.0.0", FLASH),
            "kernels-community/layer-norm": (
                *("1.0.0", {"__init__.py": "from . import layers\n", "layers.py": NORM}),
            ),
            "kernels-community/rotary": ("2.0.0", {"__init__.py": ROTARY}),
        },
        model=True,
        on_hub="trust_remote_code",
    ),
    "diffusers": Suite(
        "tests/models/transformers/test_models_transformer_flux.py",
        "AttentionBackend",
        {f"kernels-community/{name}": ("1.0.0", FLASH) for name in ("flash-attn2", "flash-attn3")},
    ),
}


def publish(suite: Suite, registry: Path, work: Path) -> None:
    """Write a registry with the kernels that the tests load."""
    for repo_id, (version, files) in suite.kernels.items():
        project = work / repo_id.partition("/")[2]
        name = project.name.replace("-", "_")
        package = project / "torch-ext" / name
        package.mkdir(parents=True)
        for path, text in files.items():
            (package / path).write_text(text)
        manifest = MANIFEST.replace('"attention"', f'"{project.name}"')
        manifest = manifest.replace("version = 1", f"version = {version.partition('.')[0]}")
        (project / "build.toml").write_text(manifest)
        kernforge("build", project)
        kernforge(
            *("publish", project, "--registry", registry, "--repo-id", repo_id),
            *("--version", version),
        )


def renamed_client(client: Path, version: str, work: Path) -> Path:
    """A copy of the installed client that says it is another version."""
    target = work / "client"
    shutil.copytree(client / "kernels", target / "kernels")
    (found,) = client.glob("kernels-*.dist-info")
    information = target / f"kernels-{version}.dist-info"
    shutil.copytree(found, information)
    text = (found / "METADATA").read_text()
    old = next(line for line in text.splitlines() if line.startswith("Version: "))
    (information / "METADATA").write_text(text.replace(old, f"Version: {version}", 1))
    return target


def run(
    suite: Suite, checkout: Path, environment: dict[str, str], before: list[str], only: str | None
) -> Any:
    """Whether each test passed; of one that did not, what it says."""
    chosen = " and ".join(f"({part})" for part in (suite.chosen, only) if part)
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        argv = [*before, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        argv += ["-p", "no:kernforge.testing.plugin", "-p", "no:xdist", f"--junitxml={report}"]
        argv += ["-k", chosen, suite.tests] if chosen else [suite.tests]
        done = subprocess.run(
            argv,
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        if not report.is_file():
            sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
        found = {}
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it just now
            bad = next((c for c in case if c.tag in {"failure", "error", "skipped"}), None)
            why = None if bad is None else f"{bad.tag}: {bad.get('message')}"
            found[f"{case.get('classname')}::{case.get('name')}"] = why
        return found


def on_hub(suite: Suite, variables: dict[str, str], home: Path) -> dict[str, str]:
    """The variables of tests that ask a hub, which runs until this program ends."""
    hub = HubServer()
    hub.publishers |= {repo_id.partition("/")[0] for repo_id in suite.kernels}
    for repo_id, (version, files) in suite.kernels.items():
        name, major = repo_id.partition("/")[2], version.partition(".")[0]
        hub.add(repo_id, f"v{major}", both(name, files, version=int(major)))
    without = ("HF_HUB_OFFLINE", "KERNFORGE_REGISTRY", "KERNELS_CACHE")
    kept = {name: text for name, text in variables.items() if name not in without}
    return {**kept, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home)}


def gpu() -> str:
    """The GPU of this machine."""
    import torch  # noqa: PLC0415 - seconds

    return str(torch.cuda.get_device_name())


def table(results: list[dict[str, Any]]) -> dict[str, Any]:
    """What the documentation shows."""
    return {
        "title": "The own tests of transformers and diffusers that concern `kernels`",
        "head": ["library", "on", "`kernels` as", "tests that pass"],
        "rows": [
            [
                f"{one['library']} {one['version']}",
                one["device"],
                one["claimed"],
                f"{one['passed']} of {one['of']}" + (f" ({one['only']})" if one["only"] else ""),
            ]
            for one in results
        ],
        "note": (
            "Of the tests that pass with the client itself in the same conditions: models that a test "
            "would download are not there, and attentions by torch's operators stand for the hub's. "
            "By `scripts/library_tests.py`."
        ),
    }


def write(path: Path, one: dict[str, Any]) -> None:
    """Put a result into a file, in the place of that of the same library, device and claim."""
    kept = json.loads(path.read_text())["results"] if path.exists() else []
    same = ("library", "version", "device", "claimed")
    kept = [each for each in kept if [each[n] for n in same] != [one[n] for n in same]]
    results = sorted([*kept, one], key=lambda each: [each[name] for name in same])
    path.write_text(json.dumps({"results": results, "table": table(results)}, indent=1) + "\n")


def main() -> None:
    """Run the tests of one library twice, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", choices=sorted(SUITES))
    parser.add_argument("--checkout", type=Path, required=True, help="of the library's repository")
    parser.add_argument("--library", dest="site", type=Path, help="where the library is installed")
    parser.add_argument("--client", type=Path, help="where the client is installed", required=True)
    parser.add_argument("--claim", default="0.17.2", help="the version of kernels (0.17.2)")
    parser.add_argument("--version", required=True, help="of the library, for the table")
    parser.add_argument("--only", metavar="EXPR", help="these of them, as pytest's -k")
    parser.add_argument("--registry", type=Path, help="the kernels, kept for the next run")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="file for the results; others stay in it")
    options = parser.parse_args()
    suite = SUITES[options.library]
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        registry = (options.registry or work / "registry").absolute()
        if not registry.exists():
            publish(suite, registry, work)
        client = renamed_client(options.client, options.claim, work)
        source = (options.site or options.checkout / "src").absolute()
        rest = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {
            **os.environ,
            "KERNFORGE_REGISTRY": str(registry),
            "KERNELS_CACHE": str(registry),
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(work / "hf"),
            "RUN_SLOW": "1",
            "DIFFUSERS_TRUST_REMOTE_KERNELS": "true",
        }
        if suite.model:
            cached = work / "hf" / "hub" / f"models--{MODEL.replace('/', '--')}"
            argv = [sys.executable, "-c", WRITE_MODEL, str(cached)]
            known = {**variables, "PYTHONPATH": os.pathsep.join(rest)}
            subprocess.run(argv, env=known, check=True, stderr=subprocess.DEVNULL)
        ours = [sys.executable, "-m", "kernforge", "run", f"--as-kernels={options.claim}", "--"]
        for who, first, before in (("kernels", client, []), ("kernforge", ROOT / "src", ours)):
            variables["PYTHONPATH"] = os.pathsep.join([str(first), *rest])
            found[who] = run(suite, options.checkout, variables, before, options.only)
            if suite.on_hub:
                there = on_hub(suite, variables, work / f"hub-{who}")
                more = run(suite, options.checkout, there, before, suite.on_hub)
                found[who] |= {name: why for name, why in more.items() if found[who][name]}
    good = [name for name, why in found["kernels"].items() if why is None]
    whys = {name: found["kernforge"].get(name, "not there") for name in good}
    failed = {name: why for name, why in whys.items() if why is not None}
    for name, why in failed.items():
        print(f"{name}: {why}")
    for name, why in found["kernels"].items():
        if why is not None:
            print(f"not counted: {name}: {' '.join(why.split())[:140]}")
    one = {
        "library": options.library,
        "version": options.version,
        "device": gpu() if options.device == "cuda" else "CPU",
        "claimed": options.claim,
        "only": options.only or "",
        "passed": len(good) - len(failed),
        "of": len(good),
        "failed": failed,
        "tests": good,
    }
    if options.json:
        write(options.json, one)
    print(f"library tests: {one['passed']} of {one['of']} pass")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
