# SPDX-License-Identifier: Apache-2.0
"""Check built variants: find problems of users before a user meets them.

The rules themselves are pure: ``package_rules``, ``abi_rules``. Here the files are read and the two
rules that need another program are run: abi3audit, and the import in a fresh process.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kernforge.artifact.directories import BuiltVariant
from kernforge.artifact.integrity import deviations, tree_files
from kernforge.artifact.metadata import FILE
from kernforge.artifact.variant import Variant
from kernforge.binary import elf, fatbin
from kernforge.check import abi_rules, package_rules
from kernforge.check.finding import Finding, Problem
from kernforge.errors import CheckError, IntegrityError, UsageError
from kernforge.system import digest, untrusted
from kernforge.system.process import Command, Runner

PYTHON_ABI = "3.9"
# Packages, kernforge's own and libraries, that decide.
_RULES = ("artifact", "binary", "check", "data", "source")
_CHECKERS = ("abi3audit", "auditwheel", "pyelftools")

# The op namespace of the build, in Python.
_CALLS_BUILD = re.compile(
    r"from \.+_ops import (?:\([^)]*|[^\n(]*)\b(?:ops|add_op_namespace_prefix)\b|\b_ops\.ops\b"
)
_TIMEOUT_S = 300
_LINES_SHOWN = 3
# Imports as a loader does: under the id, from the directory, after the framework, whose objects all
# stay: a collector that looked at them again and again would take a third of the time. The exit
# status is 3 where this interpreter cannot load the variant, 4 where no GPU is visible, 5 where an
# operator is implemented and not defined, 6 where a namespace is called and has no operator.
_IMPORT = """
import gc, importlib, importlib.util, json, sys
def end(status, *text, sep=" "):
    print(*text, sep=sep, file=sys.stderr)
    sys.exit(status)
wanted = json.loads(sys.argv[1])
gc.disable()
try:
    text = getattr(importlib.import_module(wanted["framework"]), "__version__", "0.0")
except ImportError as error:
    end(3, error)
have = [int(part) for part in text.split("+")[0].split(".")[:2]]
if have != wanted["version"] if wanted["exact"] else have < wanted["version"]:
    end(3, wanted["framework"], text, "is installed")
if wanted["cuda"] is not None:
    import ctypes
    try:
        visible = ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        visible = False
    if not visible:
        end(4, "no NVIDIA GPU is visible")
    version = getattr(sys.modules.get("torch"), "version", None)
    cuda = getattr(version, "cuda", wanted["cuda"]) or "no CUDA"
    major = wanted["cuda"].split(".")[0]
    if cuda == "no CUDA" or (major and cuda.split(".")[0] != major):
        end(3, wanted["framework"], text, "is for", cuda)
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
if added := {*dangling()} - before:
    end(5, *sorted(text.split("\\n")[0].removeprefix("name: ") for text in added), sep=", ")
if wanted["calls"]:
    names = sys.modules["torch"]._C._dispatch_get_all_op_names()
    filled = {name.partition("::")[0] for name in names}
    if empty := [name for name in wanted["calls"] if name not in filled]:
        end(6, *empty, sep=", ")
"""
_UNDEFINED_OP = {
    5: Problem(
        "an implementation is registered for {}, and no such operator is defined, so that it "
        "cannot be called",
        "compare the names in def and impl, and look for a misspelt schema in def: torch takes "
        "one that it cannot read for no schema",
    ),
    6: Problem(
        "the package calls operators of torch.ops.{}, and none is registered there: the first "
        "call is an AttributeError",
        "register them with TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops), and take `ops` from "
        "._ops in Python",
    ),
}


@functools.cache
def rules() -> str:
    """Digest of the rules: of the files that have them, and the versions of other checkers."""
    root = Path(__file__).parents[1]
    paths = [path for folder in _RULES for path in root.glob(f"{folder}/*.*")]
    return digest.key(
        "rules",
        files={path.relative_to(root).as_posix(): path.read_bytes() for path in paths},
        others=[d.version for n in _CHECKERS for d in importlib.metadata.distributions(name=n)],
    )


def check_variant(path: Path, *, run: Runner, python: str | None) -> tuple[Finding, ...]:
    """Check one variant by every rule that applies to it.

    Args:
        python: the interpreter to import with; None skips the import.
    """
    path = path.resolve()
    try:
        variant = Variant.parse(path.name)
    except UsageError as error:
        return (Finding("layout", path.name, error.message, error.hint),)
    try:
        built = BuiltVariant.read(path)
        tree_files(path, within=built.link_root)  # refuses links, pipes and devices
    except FileNotFoundError:
        hint = "build the variant again; no loader accepts one without"
        return (Finding("layout", path.name, f"{FILE} is missing", hint),)
    except IntegrityError as error:
        return (Finding("layout", f"{path.name}/{FILE}", error.message, error.hint),)
    files = sorted(f.relative_to(path).as_posix() for f in path.rglob("*") if f.is_file())
    findings = [*package_rules.layout(variant, built.metadata, files, where=path.name)]
    python_files = [file for file in files if file.endswith(".py")]
    if python_files and variant.framework != "tvm-ffi":
        sources = {file: built.read_file(file).decode(errors="replace") for file in python_files}
        findings += package_rules.registrations(sources, where=path.name)
    findings += _digest(built)
    libraries = [file for file in files if file.endswith(".so")]
    for file in libraries:
        findings += _library(built, file)
    if libraries:
        findings += _python_abi(built, libraries, run)
    # A variant that is broken already would only fail the import with a worse message.
    if not any(each.severity == "error" for each in findings):
        findings += filter(None, [_import(built, files, run, python)])
    return tuple(findings)


def _digest(built: BuiltVariant) -> Iterator[Finding]:
    """Find files that differ from the digest."""
    name, digest = built.path.name, built.metadata.digest
    if digest is None:
        message = "metadata.json has no digest: registries refuse the variant"
        yield Finding("digest", f"{name}/{FILE}", message, "build the variant again", "warning")
        return
    try:
        states = deviations(built.path, digest, within=built.link_root)
    except IntegrityError as error:
        yield Finding("digest", name, error.message, error.hint)
        return
    for file, state in states.items():
        message = f"{file} is {state}, compared with the digest: loaders refuse the variant"
        hint = "build the variant again; do not edit built files"
        yield Finding("digest", f"{name}/{file}", message, hint)


def _library(built: BuiltVariant, file: str) -> Iterator[Finding]:
    """Apply every rule for a shared object."""
    where, variant = f"{built.path.name}/{file}", built.variant
    if variant.os in {"darwin", "windows"}:
        message = f"a library for {variant.os} is not examined: only those for Linux are"
        yield Finding("abi", where, message, "check it on its own system", "skipped")
        return
    try:
        data = built.read_file(file, untrusted.FILE)
        library = abi_rules.Library(
            elf=elf.parse(data),
            code=fatbin.architectures(data),
            variant=variant,
            metadata=built.metadata,
        )
    except (CheckError, IntegrityError) as error:
        yield Finding("abi", where, error.message, error.hint)
        return
    name = built.metadata.id
    if file == f"{name}.abi3.so" and f"PyInit_{name}" not in {s.name for s in library.elf.exported}:
        message = f"it does not define PyInit_{name}, so that Python cannot import it"
        hint = "write REGISTER_EXTENSION(TORCH_EXTENSION_NAME) in one source, and build again"
        yield Finding("module", where, message, hint)
    yield from abi_rules.check_library(library, where=where)


def beyond_limited_api(files: Iterable[Path], run: Runner) -> dict[str, list[str]]:
    """The symbols of each library beyond Python's limited API, as abi3audit finds them.

    Args:
        files: libraries, which must support Python ``PYTHON_ABI``, or wheels, whose tag names it.

    Returns:
        The symbols by library, each with the first Python that has it.

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
            hint="install kernforge[build], which includes abi3audit",
        ) from None
    beyond: dict[str, list[str]] = {}
    for spec, report in specs.items():
        in_wheel = {each["name"]: each["result"] for each in report.get("wheel", ())}
        for name, result in (in_wheel or {spec: report["object"]["result"]}).items():
            newer = [f"{name} (Python {v})" for name, v in result["future_abi3_objects"].items()]
            outside = [f"{name} (never)" for name in result["non_abi3_symbols"]]
            if newer or outside:
                beyond[name] = sorted(outside + newer)
    return beyond


def _python_abi(built: BuiltVariant, libraries: list[str], run: Runner) -> Iterator[Finding]:
    """Find symbols beyond Python's limited API."""
    try:
        beyond = beyond_limited_api([built.path / file for file in libraries], run)
    except CheckError as error:
        yield Finding("python-abi", built.path.name, error.message, error.hint, "skipped")
        return
    for name, symbols in beyond.items():
        yield Finding(
            "python-abi",
            f"{built.path.name}/{name.removeprefix(f'{built.path}/')}",
            f"it uses symbols beyond the limited API of Python {PYTHON_ABI}: {', '.join(symbols)}",
            "define Py_LIMITED_API=0x03090000; bind with TORCH_LIBRARY, not with pybind11",
        )


def _import(
    built: BuiltVariant, files: Collection[str], run: Runner, python: str | None
) -> Finding | None:
    """Import the variant in a fresh process, if this machine and interpreter can."""
    variant, metadata = built.variant, built.metadata
    if python is None:
        hint = "download a kernel that you trust, and check that"
        return _skipped(built, "no Python runs it", hint)
    if reason := _missing_machine(variant):
        return _skipped(built, reason, "check it there")
    request = {
        "file": str(built.path / "__init__.py"),
        "id": metadata.id,
        "framework": "tvm_ffi" if variant.framework == "tvm-ffi" else "torch",
        "version": list(variant.version or (0, 0)),
        "exact": variant.framework in {"torch", "tvm-ffi"},
        "calls": _called_namespaces(built, files),
        # The CUDA whose major version torch must have, empty for any; None for other backends.
        "cuda": str(variant.backend.version or "") if variant.backend.name == "cuda" else None,
    }
    # -B, or the import would leave bytecode inside the variant; BIND_NOW finds every symbol.
    argv = (python, "-B", "-c", _IMPORT, json.dumps(request))
    try:
        done = run(Command(argv=argv, added={"LD_BIND_NOW": "1"}, timeout=_TIMEOUT_S))
    except FileNotFoundError:
        return _skipped(built, f"there is no interpreter {python}", "name one that exists")
    printed = _tail(done.stderr)
    match done.returncode:
        case 0:
            return None
        case 3:
            hint = f"pip install {shlex.quote(variant.requirement)}, then check again"
            return _skipped(built, f"{python} does not fit the variant: {printed}", hint)
        case 4:
            return _skipped(built, printed, "check it on a machine with one, or load it there")
        case 5 | 6 as status:
            message, hint = _UNDEFINED_OP[status]
            return Finding("undefined-op", built.path.name, message.format(printed), hint)
        case _:
            pass
    if "ModuleNotFoundError" in printed and metadata.python_depends:
        packages = ", ".join(metadata.python_depends)
        return _skipped(built, f"a dependency is missing: {printed}", f"install {packages}")
    how = "took too long" if done.timed_out else f"ended with status {done.returncode}"
    return Finding(
        "import",
        built.path.name,
        f"importing it in a fresh process {how}: {printed}",
        f"repeat it: LD_BIND_NOW=1 {python} -c 'import torch' and load the variant",
    )


def _skipped(built: BuiltVariant, reason: str, hint: str) -> Finding:
    return Finding("import", built.path.name, f"not imported: {reason}", hint, "skipped")


def _called_namespaces(built: BuiltVariant, files: Collection[str]) -> list[str]:
    """The kernel's own op namespaces that its compiled package calls."""
    if built.variant.is_noarch or built.variant.framework == "tvm-ffi":
        return []
    metadata = built.metadata
    python = (f for f in files if f.endswith(".py") and Path(f).name != "_ops.py")
    text = "\n".join(built.read_file(file).decode(errors="replace") for file in python)
    of_build = [metadata.id] if _CALLS_BUILD.search(text) else []
    fixed = [metadata.python_name] if f"torch.ops.{metadata.python_name}." in text else []
    return [*of_build, *fixed]


def _missing_machine(variant: Variant) -> str:
    """The machine that loads a variant, if it is not this one; empty if it is."""
    if variant.backend.name not in {"cpu", "cuda", "universal"}:
        return f"a build for {variant.backend} needs a machine with that device"
    here = (platform.machine(), platform.system().lower())
    if not variant.is_noarch and here != (variant.cpu, variant.os):
        return f"it is for {variant.os} on {variant.cpu}, this is {here[1]} on {here[0]}"
    return ""


def _tail(text: str) -> str:
    """The last lines of a program's output, in one."""
    return " / ".join(text.strip().splitlines()[-_LINES_SHOWN:])
