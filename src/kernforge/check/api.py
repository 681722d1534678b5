# SPDX-License-Identifier: Apache-2.0
"""Check built variants: what would break at a user, before a user meets it.

The rules themselves are pure: ``package_rules``, ``abi_rules``. Here
the files are read and the two rules that need another program are run: abi3audit, and the import in
a fresh process.
"""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernforge.artifact.integrity import digest_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.artifact.variant import Variant
from kernforge.binary import abi_floor, elf, fatbin
from kernforge.check import abi_rules, package_rules
from kernforge.check.finding import Finding, finding
from kernforge.errors import CheckError, IntegrityError, UsageError
from kernforge.source import binding_mistakes
from kernforge.system.process import Command, Runner

__all__ = ["PYTHON_ABI", "Finding", "check_variant"]

PYTHON_ABI = "3.9"

_TIMEOUT_S = 300
_LINES_SHOWN = 3
_EMPTY = 5  # exit status of the import program when a namespace that is called has no operator
_DANGLING = 4  # exit status of the import program when an operator is not defined
_NO_DEVICE = 6  # exit status of the import program when no GPU is visible
_UNFIT = 3  # exit status of the import program when this interpreter cannot serve
# Imports as a loader does: under the id, from the directory, after the framework, whose objects all
# stay: a collector that looked at them again and again would take a third of the time.
_IMPORT = f"""
import gc, importlib, importlib.util, json, sys
wanted = json.loads(sys.argv[1])
gc.disable()
try:
    text = getattr(importlib.import_module(wanted["framework"]), "__version__", "0.0")
except ImportError as error:
    sys.exit(print(error, file=sys.stderr) or {_UNFIT})
have = [int(part) for part in text.split("+")[0].split(".")[:2]]
if have != wanted["version"] if wanted["exact"] else have < wanted["version"]:
    sys.exit(print(wanted["framework"], text, "is installed", file=sys.stderr) or {_UNFIT})
if wanted["cuda"] is not None:
    import ctypes
    try:
        visible = ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        visible = False
    if not visible:
        sys.exit(print("no NVIDIA GPU is visible", file=sys.stderr) or {_NO_DEVICE})
    version = getattr(sys.modules.get("torch"), "version", None)
    found = getattr(version, "cuda", wanted["cuda"]) or "no CUDA"
    major = wanted["cuda"].split(".")[0]
    if found == "no CUDA" or (major and found.split(".")[0] != major):
        sys.exit(print(wanted["framework"], text, "is for", found, file=sys.stderr) or {_UNFIT})
gc.freeze()
gc.enable()
# What torch lists here was given an implementation, and its arguments are not declared.
bindings = getattr(sys.modules.get("torch"), "_C", None)
dangling = getattr(bindings, "_dispatch_find_dangling_impls", list)
before = set(dangling())
spec = importlib.util.spec_from_file_location(wanted["id"], wanted["file"])
module = importlib.util.module_from_spec(spec)
sys.modules[wanted["id"]] = module
spec.loader.exec_module(module)
if left := sorted(text.split("\\n")[0].removeprefix("name: ") for text in {{*dangling()}} - before):
    sys.exit(print(*left, sep=", ", file=sys.stderr) or {_DANGLING})
if wanted["calls"]:
    names = sys.modules["torch"]._C._dispatch_get_all_op_names()
    filled = {{name.partition("::")[0] for name in names}}
    if empty := [name for name in wanted["calls"] if name not in filled]:
        sys.exit(print(*empty, sep=", ", file=sys.stderr) or {_EMPTY})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedVariant:
    """One variant while it is checked."""

    path: Path
    variant: Variant
    metadata: Metadata

    @property
    def where(self) -> str:
        return self.path.name


def check_variant(path: Path, *, run: Runner, python: str | None) -> tuple[Finding, ...]:
    """Check one variant by every rule that applies to it.

    Args:
        path: its directory.
        run: starts programs.
        python: the interpreter to import with; None skips the import.
    """
    path = path.resolve()
    try:
        variant = Variant.parse(path.name)
    except UsageError as error:
        return (finding("layout", path.name, error.message, error.hint),)
    try:
        metadata = Metadata.from_json((path / FILE).read_bytes())
    except FileNotFoundError:
        hint = "build the variant again; no loader accepts one without"
        return (finding("layout", path.name, f"{FILE} is missing", hint),)
    except IntegrityError as error:
        return (finding("layout", f"{path.name}/{FILE}", error.message, error.hint),)
    checked = _CheckedVariant(path=path, variant=variant, metadata=metadata)
    findings = [*_files(checked), *_digest(checked)]
    objects = sorted(path.rglob("*.so"))
    for file in objects:
        findings += _shared_object(checked, file)
    if objects:
        findings += _python_abi(checked, objects, run)
    # A variant that is broken already would only fail the import with a worse message.
    if not any(each.severity == "error" for each in findings):
        findings += _import(checked, run, python)
    return tuple(findings)


def _files(checked: _CheckedVariant) -> Iterator[Finding]:
    """Layout, and the operators that the Python files register."""
    paths = {file.relative_to(checked.path).as_posix(): file for file in _walk(checked.path)}
    yield from package_rules.layout(checked.variant, checked.metadata, paths, where=checked.where)
    if checked.variant.framework == "tvm-ffi":
        return
    for path, file in sorted(paths.items()):
        if path.endswith(".py"):
            where = f"{checked.where}/{path}"
            yield from package_rules.registrations(file.read_bytes(), where=where)


def _walk(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def _digest(checked: _CheckedVariant) -> Iterator[Finding]:
    """Hash every file again and compare with what the metadata says."""
    promised = checked.metadata.digest
    if promised is None:
        message = "metadata.json has no digest: registries refuse the variant"
        hint = "build the variant again"
        yield finding("digest", f"{checked.where}/{FILE}", message, hint, "warning")
        return
    try:
        found = digest_tree(
            checked.path, algorithm=promised.algorithm, within=_links_within(checked.path)
        )
    except IntegrityError as error:
        yield finding("digest", checked.where, error.message, error.hint)
        return
    for path in sorted({*promised.files, *found.files}):
        if found.files.get(path) == promised.files.get(path):
            continue
        state = "is not in the digest" if path not in promised.files else "is missing"
        if path in promised.files and path in found.files:
            state = "differs from the digest"
        message = f"{path} {state}: loaders refuse the variant"
        hint = "build the variant again; do not edit what was built"
        yield finding("digest", f"{checked.where}/{path}", message, hint)


def _links_within(path: Path) -> Path:
    """Where a variant's symbolic links may lead: in a registry to the repository's blobs."""
    snapshots = path.parents[2:3]
    return path.parents[3] if [p.name for p in snapshots] == ["snapshots"] else path


def _shared_object(checked: _CheckedVariant, file: Path) -> Iterator[Finding]:
    """Every rule for one library."""
    where = f"{checked.where}/{file.relative_to(checked.path).as_posix()}"
    variant, metadata = checked.variant, checked.metadata
    if variant.os in {"darwin", "windows"}:
        message = f"a library for {variant.os} is not examined: only those for Linux are"
        yield finding("abi", where, message, "check it on its own system", "skipped")
        return
    data = file.read_bytes()
    try:
        parsed = elf.parse(data)
        archs = fatbin.architectures(data)
    except CheckError as error:
        yield finding("abi", where, error.message, error.hint)
        return
    if not variant.is_noarch:
        yield from abi_rules.machine(parsed, variant, where=where)
    if parsed.machine in abi_floor.CPUS:
        satisfied, allowed = _auditwheel(parsed)
        yield from abi_rules.manylinux(parsed, satisfied=satisfied, allowed=allowed, where=where)
    stable = variant.framework == "torch-stable-abi"
    yield from abi_rules.unresolved(parsed, where=where, stable=stable)
    yield from abi_rules.dependencies(
        parsed, backend=metadata.backend, where=where, framework=variant.framework
    )
    if variant.framework == "torch-stable-abi" and variant.version is not None:
        target = variant.version
        yield from abi_rules.torch_stable_abi(parsed.undefined, target=target, where=where)
    yield from abi_rules.fat_binary(archs, metadata.archs, backend=metadata.backend, where=where)
    yield from abi_rules.unique_symbols(parsed, where=where)


def _auditwheel(parsed: elf.Elf) -> tuple[str, Mapping[str, frozenset[str]]]:
    """Policy of auditwheel for an ELF file, if above the floor, and the floor's versions."""
    # Late: the import takes a while, and only this needs it.
    from auditwheel.architecture import Architecture  # noqa: PLC0415
    from auditwheel.libc import Libc  # noqa: PLC0415
    from auditwheel.policy import WheelPolicies  # noqa: PLC0415

    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture(parsed.machine))
    wanted = policies.get_policy_by_name(f"{abi_floor.POLICY}_{parsed.machine}")
    versions: dict[str, set[str]] = {}
    for symbol in parsed.undefined:
        if symbol.version:
            versions.setdefault(symbol.library, set()).add(symbol.version)
    found = policies.versioned_symbols_policy(versions)
    # The newer a policy is, the lower its priority.
    return found.name if found.priority < wanted.priority else "", wanted.symbol_versions


def beyond_limited_api(files: Iterable[Path], run: Runner) -> dict[str, list[str]]:
    """What libraries use that is not in Python's limited API, as abi3audit finds it.

    Args:
        files: libraries, which are to serve Python ``PYTHON_ABI``, or wheels, whose tag says it.

    Returns:
        The symbols of each library that uses any, with the first Python that has them.

    Raises:
        CheckError: abi3audit did not report.
    """
    options = ("--assume-minimum-abi3", PYTHON_ABI, "--strict", "--report")
    argv = (sys.executable, "-m", "abi3audit", *options, *map(str, files))
    done = run(Command(argv=argv, timeout=_TIMEOUT_S))
    try:
        specs = json.loads(done.stdout)["specs"]
    except (ValueError, KeyError):
        raise CheckError(
            f"abi3audit did not report: {_tail(done.stderr)}",
            hint="install kernforge[build], which brings abi3audit",
        ) from None
    found: dict[str, list[str]] = {}
    for spec, report in specs.items():
        in_wheel = {each["name"]: each["result"] for each in report.get("wheel", ())}
        for name, result in (in_wheel or {spec: report["object"]["result"]}).items():
            newer = [f"{name} (Python {v})" for name, v in result["future_abi3_objects"].items()]
            outside = [f"{name} (never)" for name in result["non_abi3_symbols"]]
            if newer or outside:
                found[name] = sorted(outside + newer)
    return found


def _python_abi(checked: _CheckedVariant, objects: list[Path], run: Runner) -> Iterator[Finding]:
    """Hold every library against Python's limited API."""
    try:
        beyond = beyond_limited_api(objects, run)
    except CheckError as error:
        yield finding("python-abi", checked.where, error.message, error.hint, "skipped")
        return
    for name, symbols in beyond.items():
        yield finding(
            "python-abi",
            f"{checked.where}/{name.removeprefix(f'{checked.path}/')}",
            f"it uses what is not in the limited API of Python {PYTHON_ABI}: {', '.join(symbols)}",
            "define Py_LIMITED_API=0x03090000; bind with TORCH_LIBRARY, not with pybind11",
        )


def _import(checked: _CheckedVariant, run: Runner, python: str | None) -> Iterator[Finding]:
    """Import the variant in a fresh process, if this machine and interpreter can."""
    if python is None:
        yield _skipped(
            checked, "no Python runs it", "download a kernel that you trust, and check that"
        )
        return
    if reason := _cannot_load(checked.variant):
        yield _skipped(checked, reason, "check it there")
        return
    variant = checked.variant
    request = {
        "file": str(checked.path / "__init__.py"),
        "id": checked.metadata.id,
        "framework": "tvm_ffi" if variant.framework == "tvm-ffi" else "torch",
        "version": list(variant.version or (0, 0)),
        "exact": variant.framework in {"torch", "tvm-ffi"},
        "calls": _called(checked),
        "cuda": _cuda(variant),
    }
    # -B, or the import would leave bytecode inside the variant; BIND_NOW finds every symbol.
    argv = (python, "-B", "-c", _IMPORT, json.dumps(request))
    try:
        done = run(Command(argv=argv, added={"LD_BIND_NOW": "1"}, timeout=_TIMEOUT_S))
    except FileNotFoundError:
        yield _skipped(checked, f"there is no interpreter {python}", "name one that exists")
        return
    printed = _tail(done.stderr)
    if done.returncode == _UNFIT:
        hint = f"pip install {shlex.quote(variant.requirement)}, then check again"
        yield _skipped(checked, f"{python} does not fit the variant: {printed}", hint)
    elif done.returncode == _NO_DEVICE:
        yield _skipped(checked, printed, "check it on a machine with one, or load it there")
    elif done.returncode == _DANGLING:
        yield finding(
            "undefined-op",
            checked.where,
            f"an implementation is registered for {printed}, and no such operator is defined, so "
            "that it cannot be called",
            "compare the names in def and impl, and look for a misspelt schema in def: torch takes "
            "one that it cannot read for no schema",
        )
    elif done.returncode == _EMPTY:
        yield finding(
            "undefined-op",
            checked.where,
            f"the package calls operators of torch.ops.{printed}, and none is registered there: "
            "the first call is an AttributeError",
            "register them with TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops), and take `ops` "
            "from ._ops in Python",
        )
    elif done.returncode and "ModuleNotFoundError" in printed and checked.metadata.python_depends:
        packages = ", ".join(checked.metadata.python_depends)
        yield _skipped(checked, f"a dependency is missing: {printed}", f"install {packages}")
    elif done.returncode:
        how = "took too long" if done.timed_out else f"ended with status {done.returncode}"
        message = f"importing it in a fresh process {how}: {printed}"
        hint = f"repeat it: LD_BIND_NOW=1 {python} -c 'import torch' and load the variant"
        yield finding("import", checked.where, message, hint)


def _called(checked: _CheckedVariant) -> list[str]:
    """The op namespaces of the kernel's own that its compiled package calls."""
    if checked.variant.is_noarch or checked.variant.framework == "tvm-ffi":
        return []
    texts = {
        file.relative_to(checked.path).as_posix(): file.read_text(errors="replace")
        for file in _walk(checked.path)
        if file.suffix == ".py" and file.name != "_ops.py"
    }
    called = {each.name for each in binding_mistakes.called_namespaces(texts)}
    own = {binding_mistakes.OWN: checked.metadata.id}
    name = checked.metadata.name.replace("-", "_")
    return sorted(own.get(each, each) for each in called if each in {binding_mistakes.OWN, name})


def _cannot_load(variant: Variant) -> str:
    """Why this machine cannot load a variant; empty when it can."""
    if variant.backend.name not in {"cpu", "cuda", "universal"}:
        return f"a build for {variant.backend} needs a machine with that device"
    if variant.is_noarch:
        return ""
    here = (platform.machine(), platform.system().lower())
    if here != (variant.cpu, variant.os):
        return f"it is for {variant.os} on {variant.cpu}, this is {here[1]} on {here[0]}"
    return ""


def _cuda(variant: Variant) -> str | None:
    """The CUDA whose major version torch must have, empty for any; None for other backends."""
    if variant.backend.name != "cuda":
        return None
    return str(variant.backend.version or "")


def _skipped(checked: _CheckedVariant, reason: str, hint: str) -> Finding:
    return finding("import", checked.where, f"not imported: {reason}", hint, "skipped")


def _tail(text: str) -> str:
    """The last lines of what a program printed, in one."""
    return " / ".join(text.strip().splitlines()[-_LINES_SHOWN:])
