# SPDX-License-Identifier: Apache-2.0
"""The rules of the package: floors, doors, the loader half, names and sizes of folders."""

import ast
import fnmatch
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kernforge

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "kernforge"
MAX_MODULES = 15


def _name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    _name(path): path
    for path in sorted(SRC.rglob("*.py"))
    if not {"templates", "data"} & set(path.relative_to(SRC).parts)
}
PACKAGES = [name for name, path in MODULES.items() if path.name == "__init__.py"]

# The modules that may import each of these.
DOORS = {
    "IPython": ["jit.notebook"],
    "argparse": ["cli.*"],
    "cryptography": ["build.cluster.certificates", "trust.signature"],
    "cuda": ["jit.device.nvrtc", "bench.engine.cuda_driver"],
    "distributed": ["build.cluster.*"],
    "elftools": ["binary.*"],
    "fcntl": ["system.files", "system.disk"],
    "fsspec": ["store.remote"],
    # hub_errors only names its errors.
    "huggingface_hub": ["registry.hub_client", "registry.hub_errors", "publish.hub", "compat.hub"],
    "pynvml": ["bench.engine.nvml"],
    "requests": ["toolchain.index.http"],
    "rich": ["system.console", "system.live_view", "dev.view"],
    "shutil": ["system.files"],
    "sigstore": ["trust.signature"],
    "socket": ["toolchain.index.http"],
    "subprocess": ["system.process"],
    "tempfile": ["system.files", "system.process", "system.disk"],
    "urllib3": ["toolchain.index.http"],
}
# Modules that do no input or output at all, and those among them that do.
PURE = [
    *("artifact.*", "binary.*", "build.plan.*", "manifest.*", "source.*"),
    *("loader.resolve", "loader.kernels_lock", "loader.pins"),
    *(
        "registry.names",
        "registry.redirect",
        "trust.policy",
        "trust.releases",
        "layers.mapping",
        "layers.modes",
    ),
    *("toolchain.lockfile", "toolchain.releases", "toolchain.tree_names", "toolchain.cuda_arch"),
    *("project.units", "project.targets"),
    *("publish.version", "publish.api_diff", "publish.hub_commits", "wheel.plan"),
    *("adopt.bindings", "adopt.cpp", "adopt.package", "build.execute.schedule"),
    *("bench.engine.workload", "bench.engine.doubts"),
    *("bench.engine.samples", "bench.engine.stats"),
    *("bench.roofline", "bench.text", "bench.html", "bench.picture", "bench.svg"),
    *("bench.profiler.counters", "bench.profiler.launches", "bench.profiler.limit"),
    *("bench.profiler.names", "bench.profiler.ncu", "bench.profiler.cupti", "bench.profiler.text"),
    *("doctor.facts", "doctor.rules", "doctor.environment_rules"),
    *("jit.plan", "jit.flags", "jit.torch_headers"),
    *("setuptools.plan", "setuptools.link_errors"),
    *("jit.device.tokens", "jit.device.split", "jit.device.lambdas", "jit.device.plan"),
]
IMPURE = {"artifact.directories", "artifact.integrity", "manifest.migrate"}
SIDE_EFFECTS = {"os", "platform", "time", "torch", *DOORS} - {"elftools"}
# All that an application which loads kernels meets; a new module is refused until it is added.
LOADER_HALF = [
    *("errors", "_lazy", "_version", "budgets", "documents"),
    *("artifact", "loader", "layers", "registry", "system", "trust"),
    *("system.digest", "system.environment", "system.extras", "system.files", "system.tables"),
    *("artifact.integrity", "artifact.metadata", "artifact.python_depends", "artifact.variant"),
    "artifact.version",
    *("trust.admission", "trust.policy", "trust.releases", "trust.signature"),
    *("registry.*", "loader.*", "layers.*"),
]


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


@functools.cache
def _imports(module: str) -> frozenset[str]:
    """All that a module imports anywhere: ours by dotted name, others by the name of their root."""
    found: set[str] = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            home = node.module or ""
            inner = {f"{home}.{alias.name}" for alias in node.names}
            ours = {name for name in inner if name.removeprefix("kernforge.") in MODULES}
            found |= ours or {home}
    return frozenset(
        name.removeprefix("kernforge.") if name.startswith("kernforge.") else name.partition(".")[0]
        for name in found
    )


def _matches(module: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(module, pattern) for pattern in patterns)


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_import_contracts_are_kept():
    # In a process of its own: it switches off the loggers of the one that it runs in.
    program = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(cache_dir=None))"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_effect_has_one_door(module):
    for effect, doors in DOORS.items():
        if effect in _imports(module):
            assert _matches(module, doors), f"{effect} is used in {module}; use {doors}"


def test_pure_modules_do_no_io(module):
    if not _matches(module, PURE) or module in IMPURE or module in PACKAGES:
        return
    assert not _imports(module) & SIDE_EFFECTS
    calls = {n.func for n in ast.walk(_tree(module)) if isinstance(n, ast.Call)}
    assert not {"open", "print"} & {call.id for call in calls if isinstance(call, ast.Name)}


# The modules that may mention the process's environment variables; others take an `Environment`.
OS_ENVIRON = {
    "system.environment",
    "system.process",  # what a program inherits
    "testing.plugin",  # takes out what is not for the tests' own programs
    "dev.warm_pytest_main",  # becomes the pytest of another environment
    "export.python",  # text of a setup.py that it writes
}
# Where a process or a call of the public API begins: the environment is read and handed on.
ENTRANCES = {
    "setuptools.extension",  # setuptools calls it
    *("compat.hub", "compat.loading", "compat.modules"),  # the client's functions
    *("cli.main", "build.cluster.worker", "testing.remote", "testing.plugin", "jit.session"),
    *("loader.api", "layers.kernelize", "registry.api"),
}


def test_variables_are_read_where_a_process_or_a_public_call_begins():
    texts = {name: path.read_text() for name, path in MODULES.items()}
    reading = {name for name, text in texts.items() if re.search(r"os\.(environ|getenv)\b", text)}
    assert reading == OS_ENVIRON, "take a kernforge.system.environment.Environment"
    taking = {n for n, text in texts.items() if re.search(r"Environment\.(read|live)\b", text)}
    assert taking == ENTRANCES, "let the caller hand on its Environment"


def test_torch_is_imported_late(module):
    for node in _tree(module).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert "torch" not in {name.partition(".")[0] for name in names}, (
            "import it where it is used"
        )


def test_only_the_command_line_exits(module):
    exits = [
        n for n in ast.walk(_tree(module)) if isinstance(n, ast.Attribute) and n.attr == "exit"
    ]
    if any(isinstance(n.value, ast.Name) and n.value.id == "sys" for n in exits):
        assert _matches(module, EXITS), f"{module} calls sys.exit"


# Programs that another process of ours starts end with a code of their own.
EXITS = ["__main__", "cli.main", "build.execute.namespaces", "dev.bench", "dev.warm_pytest_main"]


def test_the_loader_half_is_what_it_is_allowed_to_be():
    reached: set[str] = set()
    todo = {name for name in MODULES if name.startswith(("loader.", "layers."))}
    while todo:
        reached |= todo
        todo = {name for module in todo for name in _imports(module) if name in MODULES} - reached
    assert not [name for name in sorted(reached) if not _matches(name, LOADER_HALF)]


def test_every_pure_door_and_allowed_name_exists():
    patterns = {*PURE, *LOADER_HALF, *EXITS, *(d for doors in DOORS.values() for d in doors)}
    assert not [p for p in sorted(patterns) if not fnmatch.filter(MODULES, p)]
    assert set(MODULES) >= IMPURE


def test_a_folder_holds_at_most_fifteen_modules():
    folders = [name.rpartition(".")[0] for name in MODULES if name not in PACKAGES]
    assert not {f for f in folders if f and folders.count(f) > MAX_MODULES}


# These hand out public names lazily.
FACES = {"", "compat", "registry", "setuptools", "testing"}


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - {"__init__"} - FACES))
def test_a_package_is_a_docstring(package):
    statements = _tree(package).body
    assert len(statements) == 1
    assert ast.get_docstring(_tree(package))


def test_no_module_bears_a_public_name():
    top = {name.partition(".")[0] for name in MODULES}
    assert not top & set(kernforge.__all__), "its first import would replace the public name"


def test_no_class_name_is_borne_by_two_classes():
    # compat has the client's names by its purpose
    own = [module for module in MODULES if not module.startswith("compat.")]
    names = [n.name for m in own for n in ast.walk(_tree(m)) if isinstance(n, ast.ClassDef)]
    assert not {name for name in names if names.count(name) > 1}
