# SPDX-License-Identifier: Apache-2.0
"""The import rules of the package: a module imports only modules of the layers above its own."""

import ast
import functools
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "kernforge"

LAYERS: list[set[str]] = [
    {"errors"},
    # layers of models: what is decided about them
    {"layer_values"},
    {"layer_mapping"},
    {"layer_report"},
    # values
    {
        "arch",
        "benchmark",
        "collector",
        "cubinuse",
        "diagnostics",
        "digest",
        "elf",
        "finding",
        "includes",
        "names",
        "occupancy",
        "pipconfig",
        "variant",
    },
    {
        "doctor_facts",
        "extras",
        "facts",
        "interrupts",
        "cubin",
        "fatbin",
        "manifest_legacy",
        "manifest_values",
        "pydepends",
        "tomllines",
    },
    # documents
    {"dependencies", "lockfile", "lockship", "manifest_model", "metadata", "policy", "resources"},
    {"manifest_mistakes", "pins", "redirect"},
    {"kernellock", "variantdirs"},
    {"manifest", "provenance"},
    {"compare"},
    # decisions
    {"doctor_env"},
    {
        "doctor",
        "floor",
        "matrix",
        "pyapi",
        "resolve",
        "schema",
        "simpleindex",
        "sourcerules",
        "units",
    },
    {"abirules", "apidiff", "flags", "opschema", "platforms", "wheelplan"},
    {"clangflags", "graph", "opsname"},
    {"actions", "estimate", "exportcmake", "exportpython"},
    {"linking"},
    {"jit_flags", "jit_sources", "jit_tokens"},
    {"jit_lean", "jit_split"},
    {"hubplan", "jit_plan", "plan", "promise"},
    {"jit_slim"},
    {"jit_device", "jit_replan"},
    {"bench_doubts", "bench_plan", "bench_roofline", "bench_stats", "bench_throttle"},
    {"bench_outcome", "bench_report", "bench_svg"},
    {"bench_page", "bench_payload", "bench_rows"},
    {"schedule"},
    # doors
    {"files", "meter", "net", "volume"},
    {"enter", "run"},
    # probes
    {"compiler", "cudahome", "depends", "home", "host", "index", "integrity", "memory", "pack"},
    {"jit_ask", "jit_files", "signature"},
    {"measures", "outcome", "project", "pyheaders", "rangezip", "shared_store"},
    {"store"},
    {"results", "sandbox", "wheels"},
    {"redist"},
    {"torchhome"},
    {"own", "wheelpick"},
    {"clangkit"},
    # stages
    {"directory", "hubplace"},
    {"hubclient"},
    {"hub"},
    {"artifact", "check", "crew", "eviction", "importer", "lock", "migrate", "oldlock", "registry"},
    {"scaffold", "sourcefiles", "toolchain", "trust", "wheelfile", "wheelneeds"},
    {"checkup", "offers"},
    {"callerlock", "checked", "destination", "locate", "perform", "signing", "workbench"},
    {"build", "hubpublish", "locking", "parcel", "roots"},
    {"publish"},
    {"compiledb", "download", "fitness", "kernelpins", "pipeline", "sourcepack"},
    {"about", "export", "hubrepo", "loading", "lockfiles", "shell", "wheelbuild"},
    {"verify"},
    # checks of operators
    {"testing_cases", "testing_compare", "testing_guards", "testing_import"},
    {"testing_case"},
    {"testing_gpu", "testing_large", "testing_torch"},
    {"testing_plugin"},
    {"testing_checks", "testing_options"},
    {"testing"},
    {"projecttest"},
    {"dev_pytest", "dev_spare", "dev_values"},
    {"dev_report"},
    {"hook_hatchling", "hook_setuptools", "reproduce", "worker"},
    {"buildhere", "cluster"},
    {"bench_check", "bench_driver", "bench_garbage", "bench_nvml", "hubclass"},
    {"bench_exchange", "bench_gate"},
    {"bench_contender", "bench_oracle", "bench_runner", "bench_timer"},
    {"bench_graph", "bench_judge"},
    {"bench_worker"},
    {"bench", "bench_hubworker"},
    {"bench_hub", "dev_bench", "dev_control"},
    # layers of models: what is done
    {"layer_class", "layer_scope", "layer_swap"},
    {"layer_decide", "layer_extend", "layer_repos"},
    {"layer_kernelize"},
    # surface
    {"dev_view", "live"},
    {"report"},
    {"jit_machine", "jit_undefined"},
    {"jit_module"},
    {"jit_hint", "jit_request", "jit_rtc", "jit_stages"},
    {"jit_swap"},
    {"jit_build", "jit_edit", "jit_mistake"},
    {"dev_build", "jit_make", "jit_project"},
    {"dev_round"},
    {"dev"},
    {"jit"},
    {"magic"},
    {"cli_options", "completion"},
    {path.stem for path in SRC.glob("cli_*.py")} - {"cli_options"},
    {"cli", "__init__"},
    {"__main__"},
]
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}
PURE = set().union(*LAYERS[: next(i for i, layer in enumerate(LAYERS) if "net" in layer)])

COMMANDS = {"cli", *(module for module in RANK if module.startswith("cli_"))}

# The modules that may import each of these; most have one door.
DOORS = {
    "argparse": {"completion", *COMMANDS},
    "cuda": {"jit_rtc"},
    "distributed": {"cluster", "projecttest", "worker"},
    "fsspec": {"shared_store"},
    "huggingface_hub": {"hubclient", "hubpublish"},
    "fcntl": {"files", "volume"},
    "filelock": {"files"},
    "requests": {"net"},
    "rich": {"dev_view", "live"},
    "shutil": {"files"},
    "socket": {"net"},
    "subprocess": {"run"},
    "tempfile": {"files", "run", "volume"},
    "urllib": {"net", "pipconfig", "simpleindex", "wheels"},
}
# What a pure module may not import at all.
IMPURE = {"os", "platform", "time", "torch", *DOORS}
PURE_EXCEPTIONS = {("pipconfig", "urllib"), ("simpleindex", "urllib")}  # urllib.parse alone
# What no process that only loads kernels may meet.
BUILDER = {
    "about",
    "apidiff",
    "actions",
    "artifact",
    "bench",
    "bench_check",
    "bench_contender",
    "bench_doubts",
    "bench_driver",
    "bench_exchange",
    "bench_garbage",
    "bench_gate",
    "bench_graph",
    "bench_hub",
    "bench_hubworker",
    "bench_judge",
    "bench_nvml",
    "bench_oracle",
    "bench_outcome",
    "bench_page",
    "bench_payload",
    "bench_report",
    "bench_roofline",
    "bench_rows",
    "bench_runner",
    "bench_svg",
    "bench_throttle",
    "bench_timer",
    "bench_worker",
    "build",
    "buildhere",
    "check",
    "checked",
    "checkup",
    "clangflags",
    "clangkit",
    *COMMANDS,
    "cluster",
    "collector",
    "compare",
    "compiledb",
    "compiler",
    "completion",
    "cudahome",
    "cubinuse",
    "dependencies",
    "depends",
    "dev",
    "dev_bench",
    "dev_build",
    "dev_control",
    "dev_pytest",
    "dev_report",
    "dev_round",
    "dev_spare",
    "dev_values",
    "dev_view",
    "diagnostics",
    "doctor",
    "doctor_facts",
    "download",
    "crew",
    "destination",
    "enter",
    "export",
    "exportcmake",
    "exportpython",
    "floor",
    "hook_hatchling",
    "hook_setuptools",
    "hubclass",
    "hubplan",
    "hubpublish",
    "hubrepo",
    "index",
    "jit",
    "cubin",
    "jit_build",
    "jit_device",
    "jit_edit",
    "jit_files",
    "jit_flags",
    "jit_hint",
    "jit_lean",
    "jit_machine",
    "jit_make",
    "jit_mistake",
    "jit_module",
    "jit_plan",
    "jit_project",
    "jit_replan",
    "jit_request",
    "jit_rtc",
    "jit_slim",
    "jit_sources",
    "jit_split",
    "jit_stages",
    "jit_swap",
    "jit_tokens",
    "jit_undefined",
    "kernelpins",
    "graph",
    "linking",
    "lock",
    "locking",
    "lockfile",
    "lockfiles",
    "lockship",
    "magic",
    "manifest",
    "manifest_model",
    "matrix",
    "migrate",
    "net",
    "opschema",
    "offers",
    "outcome",
    "occupancy",
    "opsname",
    "own",
    "parcel",
    "perform",
    "pipeline",
    "plan",
    "platforms",
    "project",
    "projecttest",
    "promise",
    "provenance",
    "pyapi",
    "pyheaders",
    "reproduce",
    "redist",
    "resources",
    "results",
    "roots",
    "run",
    "sandbox",
    "scaffold",
    "schema",
    "sourcefiles",
    "sourcepack",
    "shared_store",
    "shell",
    "signing",
    "testing",
    "testing_case",
    "testing_cases",
    "testing_checks",
    "testing_compare",
    "testing_gpu",
    "testing_guards",
    "testing_import",
    "testing_large",
    "testing_options",
    "testing_plugin",
    "testing_torch",
    "toolchain",
    "torchhome",
    "simpleindex",
    "units",
    "verify",
    "wheelbuild",
    "wheelfile",
    "wheelneeds",
    "wheelpick",
    "wheelplan",
    "wheels",
    "workbench",
    "worker",
}


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def _imports(path: Path) -> set[str]:
    """Every module that the file imports anywhere, siblings by their bare name."""
    found: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found |= {_bare(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "kernforge":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(_bare(node.module))
    return found


def _bare(name: str) -> str:
    root, _, rest = name.partition(".")
    return rest.split(".")[0] if root == "kernforge" and rest else root


@pytest.fixture(params=sorted(SRC.glob("*.py")), ids=lambda path: path.stem)
def module(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_every_module_has_a_layer(module):
    assert module.stem in RANK, f"{module.name} is in no layer: add it to LAYERS"


def test_imports_point_one_way(module):
    rank = RANK[module.stem]
    upward = {n for n in _imports(module) if RANK.get(n, -1) >= rank and n != module.stem}
    assert not upward, f"{module.stem} imports {sorted(upward)}, which sit beside or below it"


def test_pure_modules_do_no_io(module):
    if module.stem in PURE:
        found = {n for n in _imports(module) & IMPURE if (module.stem, n) not in PURE_EXCEPTIONS}
        assert not found
        assert not {"open", "print"} & _called(module)


def _called(path: Path) -> set[str]:
    nodes = ast.walk(_tree(path))
    return {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def test_each_effect_has_one_door(module):
    for effect, doors in DOORS.items():
        if effect in _imports(module):
            assert module.stem in doors, f"{effect} is used in {module.name}; use {sorted(doors)}"


def test_torch_is_imported_late(module):
    for node in _tree(module).body:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not [n for n in names if n.split(".")[0] == "torch"], "import torch where it is used"


def test_a_loading_process_never_meets_the_builder():
    seen: set[str] = set()
    todo = {"loading", "layer_extend", "layer_kernelize", "layer_repos"}
    while todo:
        seen |= todo
        todo = {n for m in todo for n in _imports(SRC / f"{m}.py") if n in RANK} - seen
    assert not seen & BUILDER
