# SPDX-License-Identifier: Apache-2.0
"""What versions of the client before 0.17 did otherwise, in a process that claims one of them."""

import hashlib
import json

import pytest
from support.client_programs import INSTALL, python

from kernforge.compat import names
from kernforge.publish.api import publish


def as_version(program, registry, version):
    told = python(
        INSTALL + program,
        HOME=str(registry.root),
        KERNFORGE_KERNELS_VERSION=version,
        KERNFORGE_REGISTRY=str(registry.root),
    )
    return json.loads(told)


@pytest.mark.parametrize(
    ("version", "module", "name", "home"),
    [
        ("0.14.1", "", "get_kernel", ("compat.earlier", "get_kernel_or_main")),
        ("0.15.2", "", "get_kernel", ("compat.earlier", "get_kernel")),
        ("0.16.2", "layer", "LayerRepository", ("compat.layers", "LayerRepository")),
        ("0.14.0", "layer", "LayerRepository", ("compat.earlier", "LayerRepository")),
        ("0.17.0", "utils", "get_kernel", ("compat.loading", "get_kernel")),
        ("0.18.2", "", "get_kernel", ("compat.loading", "get_kernel")),
        ("0.18.0.dev0", "", "get_kernel", ("compat.loading", "get_kernel")),
        ("1.0", "lockfile", "KernelLock", ("compat.values", "KernelLock")),
        ("1", "", "get_kernel", ("compat.loading", "get_kernel")),
        ("0.18rc1", "", "get_kernel", ("compat.loading", "get_kernel")),
        ("0.16rc1", "", "get_kernel", ("compat.earlier", "get_kernel")),
        ("0.16.0", "lockfile", "KernelLock", ("compat.earlier", "KernelLock")),
    ],
)
def test_the_claimed_version_says_which_function_answers(version, module, name, home):
    assert names.homes(module, version)[name] == home


MAIN = """
import json, sys, warnings
import kernels
from kernels.layer import LayerRepository
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as seen:
    answers = [kernels.get_kernel("acme/toy").ANSWER, kernels.has_kernel("acme/toy")]
    made = LayerRepository("acme/toy", layer_name="Layer")
    try:
        made.load()
    except ValueError as error:  # the kernel has no layers
        answers.append(str(error))
print(json.dumps([answers, [str(warning.message) for warning in seen]]))
"""


def test_without_a_version_0_14_takes_the_branch_main(registry, build):
    publish(build(), registry, "acme/toy")
    answers, warnings = as_version(MAIN, registry, "0.14.1")
    assert answers[:2] == [42, True]
    assert "does not define any layers" in answers[2]
    assert len(warnings) == 3
    assert all("will require specifying a kernel version or revision" in text for text in warnings)


REFUSED = """
import json, kernels
found = []
for call in (
    lambda: kernels.get_kernel("acme/toy"),
    lambda: kernels.has_kernel("acme/toy"),
    lambda: kernels.LayerRepository("acme/toy", layer_name="Layer"),
):
    try:
        call()
    except ValueError as error:
        found.append(str(error))
print(json.dumps(found))
"""


def test_without_a_version_0_15_and_later_refuse(registry, build):
    publish(build(), registry, "acme/toy")
    for version in ("0.15.2", "0.17.2"):
        found = as_version(REFUSED, registry, version)
        assert len(found) == 3
        assert all("revision" in text for text in found)


WITHOUT_REASONS = """
import json
from kernels.variants import parse_variant, resolve_variant, resolve_variants
found = [parse_variant(name) for name in ("torch-cuda", "torch-universal", "torch-cpu")]
kind = [type(resolve_variants(found)).__name__, type(resolve_variant(found)).__name__]
best = resolve_variant(found)
print(json.dumps([kind, getattr(best, "variant_str", None)]))
"""


def test_0_14_gives_variants_without_the_reasons(registry):
    kinds, best = as_version(WITHOUT_REASONS, registry, "0.14.1")
    assert kinds == ["list", "NoarchVariant"]
    assert best in {"torch-cpu", "torch-cuda"}
    assert as_version(WITHOUT_REASONS, registry, "0.15.2")[0] == ["tuple", "tuple"]


BY_PLACE = """
import json, os, kernels
# repo_id, revision, version, backend: as signatures were before 0.17
answers = [kernels.get_kernel("acme/toy", None, 1, "cpu").ANSWER]
answers.append(kernels.has_kernel("acme/toy", None, 1))
os.environ["LOCAL_KERNELS"] = "acme/gone=/non/existing"
try:
    kernels.get_kernel("acme/gone", None, 1)
except FileNotFoundError as error:
    answers.append(str(error).split(":")[0])
print(json.dumps(answers))
"""


@pytest.mark.parametrize("version", ["0.14.1", "0.16.2"])
def test_arguments_by_place_and_the_words_for_a_directory_without_a_kernel(
    registry, build, version
):
    publish(build(), registry, "acme/toy")
    answers = as_version(BY_PLACE, registry, version)
    assert answers == [42, True, "Could not find kernel in /non/existing"]


OLD_LOCK = """
import json, kernels
from pathlib import Path
from kernels.lockfile import KernelLock, VariantLock
from kernels.utils import install_kernel, git_hash_object
path = install_kernel("acme/toy", revision="v1")
found = [git_hash_object(b"a").hex()]
for locks in ({path.name: VariantLock(hash=HASH)}, {path.name: VariantLock("sha256-0")}, {}):
    try:
        install_kernel("acme/toy", revision="v1", variant_locks=locks)
        found.append("ok")
    except ValueError as error:
        found.append(str(error).split(",")[0])
lock = {"repo_id": "acme/toy", "sha": "0" * 40, "variants": {"torch-cpu": {"hash": "sha256-0"}}}
found.append(KernelLock.from_json(lock).variants["torch-cpu"].hash_type)
print(json.dumps(found))
"""


def git(data):
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False)


def test_hashes_of_a_lock_of_0_16(registry, build):
    made = build()
    publish(made, registry, "acme/toy")
    parts = b"".join(
        path.name.encode() + git(path.read_bytes()).digest()
        for path in sorted((made / "torch-cpu").iterdir())
    )
    wanted = f"sha256-{hashlib.sha256(parts).hexdigest()}"
    found = as_version(OLD_LOCK.replace("HASH", repr(wanted)), registry, "0.16.2")
    assert found == [
        git(b"a").hexdigest(),
        "ok",
        "Lock file specifies kernel with hash sha256-0",
        "No lock found for build variant: torch-cpu",
        "git_lfs_concat",
    ]


# vLLM-Omni 0.32 (kernels==0.16.1): version 1, then 2, after any error; then the attention.
VLLM_OMNI = """
import json, torch
from kernels import get_kernel
def load(repo_id):
    last = None
    for version in (1, 2):
        try:
            return get_kernel(repo_id, version=version)
        except Exception as error:
            last = error
    raise RuntimeError(repo_id) from last
module = load("kernels-community/flash-attn2")
q = torch.ones(3, 2, 4)
starts = torch.tensor([0, 3], dtype=torch.int32)
varlen = getattr(module, "flash_attn_varlen_func", None)
out = varlen(
    q=q, k=q, v=q, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=3, max_seqlen_k=3,
    causal=False, softmax_scale=0.5,
)
try:
    load("kernels-community/flash-attn3")
except RuntimeError as error:
    missing = type(error.__cause__).__name__
print(json.dumps([list(out.shape), getattr(module, "flash_attn_func", None), missing]))
"""
ATTENTION = """
def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale
):
    return (q, k) if causal else q
"""


@pytest.mark.torch
def test_the_calls_of_vllm_omni(registry, build):
    made = build(name="flash-attn2", version=2, files={"__init__.py": ATTENTION})
    publish(made, registry, "kernels-community/flash-attn2")
    shape, dense, missing = as_version(VLLM_OMNI, registry, "0.16.1")
    assert (shape, dense) == ([3, 2, 4], None)
    assert missing == "AbsentError"
