# SPDX-License-Identifier: Apache-2.0
"""The public surface of the hub's client, ``kernels``: what an application imports is here too."""

import builtins
import inspect
import json
import sys

import pytest

import kernels
import kernforge
from kernels import importer as their_importer
from kernforge import errors
from kernforge.artifact.metadata import GitState, Provenance
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

# Names of theirs that are not ours, each with the reason. What the layer modules export is added
# by them.
NOT_OURS: dict[str, str] = {}
FUNCTIONS = [name for name in kernels.__all__ if inspect.isfunction(getattr(kernels, name, None))]


def layers_are_here():
    return "kernelize" in kernforge.__all__


def test_every_name_of_the_client_is_ours_or_has_a_reason():
    missing = set(kernels.__all__) - set(kernforge.__all__) - set(NOT_OURS)
    if not layers_are_here():
        missing -= set(kernels.layer.__all__)
    assert not missing
    assert not set(NOT_OURS) & set(kernforge.__all__)
    for name in set(kernels.__all__) & set(kernforge.__all__):
        ours, theirs = getattr(kernforge, name), getattr(kernels, name)
        assert inspect.isclass(ours) == inspect.isclass(theirs), name
        assert callable(ours) == callable(theirs), name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_call_of_the_client_is_a_call_of_ours(name):
    if name not in kernforge.__all__:
        assert name in NOT_OURS or not layers_are_here()
        return
    theirs = inspect.signature(getattr(kernels, name)).parameters
    ours = inspect.signature(getattr(kernforge, name)).parameters
    for position, (parameter, their) in enumerate(theirs.items()):
        our = ours[parameter]
        assert our.kind == their.kind, parameter
        if their.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            assert list(ours)[position] == parameter
        if their.default is not inspect.Parameter.empty:
            assert our.default == their.default, parameter
    for parameter in set(ours) - set(theirs):
        assert ours[parameter].kind is inspect.Parameter.KEYWORD_ONLY, parameter
        assert ours[parameter].default is not inspect.Parameter.empty, parameter


def test_values_have_the_fields_of_the_client():
    for ours, theirs in (
        (kernforge.RepoInfo, kernels.RepoInfo),
        (kernforge.LoadedKernel, their_importer.LoadedKernel),
    ):
        assert set(theirs.__dataclass_fields__) <= set(ours.__dataclass_fields__)


@pytest.fixture
def cache(tmp_path, write_variant, monkeypatch):
    """A cache with one kernel that fits here and one that does not; both clients read it."""
    registry = DirectoryRegistry(tmp_path / "registry")
    dirty = Provenance(builder_version="0", kernel=GitState(commit="a" * 40, dirty=False))
    variants = {
        "owner/fits": ("torch-universal", {}),
        "owner/other": ("torch211-cxx11-cpu-x86_64-linux", {}),
        "owner/needs-newer": ("torch-universal", {"kernels_minver": "9.0.0"}),
        "owner/needs-package": ("torch-universal", {"python_depends": ("helion",)}),
        "owner/depends": ("torch-universal", {"depends": {"owner/fits": 1}}),
        "owner/lost": ("torch-universal", {"depends": {"owner/absent": 1}}),
    }
    for number, (repo_id, (variant, fields)) in enumerate(variants.items()):
        directory = tmp_path / f"build-{number}"
        unique = f"surface{number}"
        write_variant(directory, variant=variant, unique=unique, provenance=dirty, **fields)
        publish(directory, registry, repo_id)
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(registry.root))
    monkeypatch.delenv("LOCAL_KERNELS", raising=False)
    monkeypatch.setenv("KERNELS_CACHE", str(registry.root))
    for module in ("hf_hub", "resolver", "install", "locking"):
        monkeypatch.setattr(f"kernels.{module}.CACHE_DIR", str(registry.root))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return registry


def lock_of(registry, path, *repo_ids):
    entries = [
        {
            "dependency": {"repo-id": repo_id, "version": 1},
            "lock": {"commit": registry.ref(repo_id, "v1")},
        }
        for repo_id in repo_ids
    ]
    path.write_text(json.dumps(entries))
    return path


REQUESTS = [
    ("get_kernel", "owner/fits", {"version": 1}),
    ("get_kernel", "owner/depends", {"version": 1}),
    ("get_kernel", "owner/fits", {"revision": "v1"}),
    ("get_kernel", "owner/fits", {}),
    ("get_kernel", "owner/fits", {"version": 1, "revision": "v1"}),
    ("get_kernel", "owner/fits", {"version": 2}),
    ("get_kernel", "owner/fits", {"version": 1, "backend": "cpu"}),
    ("get_kernel", "owner/fits", {"version": 1, "backend": "rocm"}),
    ("get_kernel", "owner/other", {"version": 1}),
    ("get_kernel", "owner/needs-newer", {"version": 1}),
    ("get_kernel", "owner/needs-package", {"version": 1}),
    ("get_kernel", "owner/lost", {"version": 1}),
    ("has_kernel", "owner/fits", {"version": 1}),
    ("has_kernel", "owner/other", {"version": 1}),
    ("has_kernel", "owner/fits", {}),
    ("install_kernel", "owner/fits", {"version": 1, "local_files_only": True}),
    ("install_kernel", "owner/other", {"version": 1, "local_files_only": True}),
    ("load_kernel", "owner/fits", {"lockfile": "fits"}),
    ("load_kernel", "owner/depends", {"lockfile": "depends"}),
    ("load_kernel", "owner/depends", {"lockfile": "depends-alone"}),
    ("load_kernel", "owner/other", {"lockfile": "fits"}),
    ("load_kernel", "owner/fits", {"lockfile": None}),
    ("get_locked_kernel", "owner/fits", {"lockfile": "fits"}),
    ("get_locked_kernel", "owner/other", {"lockfile": "fits"}),
]


KINDS = (ValueError, ImportError, FileNotFoundError, RuntimeError)


def outcome(client, function, repo_id, arguments):
    """What a call returns, in short, or the built-in errors as which what it raises is caught."""
    # Either client refuses, or would take for its own, what the other one put there.
    for name in [name for name in sys.modules if name.startswith("_toy_cpu_surface")]:
        del sys.modules[name]
    try:
        found = getattr(client, function)(repo_id, **arguments)
    except Exception as error:  # noqa: BLE001 - whatever the client raises is what we want
        return {kind for kind in KINDS if isinstance(error, kind)}
    return getattr(found, "ANSWER", found)


@pytest.mark.parametrize(("function", "repo_id", "arguments"), REQUESTS)
def test_both_clients_answer_alike(cache, tmp_path, function, repo_id, arguments):
    arguments = dict(arguments)
    if arguments.get("lockfile"):
        lock_of(cache, tmp_path / "fits", "owner/fits")
        lock_of(cache, tmp_path / "depends", "owner/fits", "owner/depends")
        lock_of(cache, tmp_path / "depends-alone", "owner/depends")
        arguments["lockfile"] = tmp_path / arguments["lockfile"]
    theirs = outcome(kernels, function, repo_id, arguments)
    ours = outcome(kernforge, function, repo_id, arguments)
    if isinstance(theirs, set):
        assert theirs
        assert theirs <= ours
    else:
        assert ours == theirs


def test_each_error_is_ours_and_the_built_in_one():
    for kind in (errors.RequestError, errors.MissingPackageError, errors.MachineError):
        error = kind("what is wrong", hint="what to do")
        assert str(error) == "what is wrong\nwhat to do"
        assert any(getattr(builtins, base.__name__, None) is base for base in kind.__mro__[1:-3])


def test_the_decisions_about_variants_are_alike(cache):
    for decision in kernforge.get_kernel_variants("owner/other", version=1):
        assert isinstance(decision, kernforge.VariantRejected)
        assert decision.variant.variant_str == "torch211-cxx11-cpu-x86_64-linux"
        assert "torch" in decision.reason
    (decision,) = kernforge.get_kernel_variants("owner/fits", version=1)
    assert isinstance(decision, kernforge.VariantAccepted)
