# SPDX-License-Identifier: Apache-2.0
"""The table of commands: summary, arguments, example and page of each, and former names."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Argument:
    """An option or a positional argument of a command, as ``argparse`` takes it."""

    names: tuple[str, ...]
    keywords: Mapping[str, Any]


class Command:
    """A command of the command line.

    Args:
        summary: a line for the list of commands, beginning in lower case, without a full stop.
        arguments: its arguments; a tuple among them has options that exclude each other.
        page: its page of the documentation, as for ``tables.page``.
        usage: the usage line, where ``argparse`` cannot write it.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        *arguments: Argument | tuple[Argument, ...],
        example: str,
        page: str,
        more: str = "",
        usage: str | None = None,
    ) -> None:
        self.name = name
        self.summary = summary
        self.arguments = arguments
        self.example = example
        self.page = page
        self.more = more
        self.usage = usage


def _value(spec: str, text: str, **keywords: Any) -> Argument:
    """An argument with a value.

    Args:
        spec: its names, and the name of the value in the help, as ``-j --jobs N``.
        keywords: more keywords of ``add_argument``.
    """
    words = spec.split()
    names = tuple(word for word in words if word.startswith("-")) or (words[0],)
    if rest := words[len(names) :]:
        keywords["metavar"] = " ".join(rest)
    return Argument(names, {"help": text, **keywords})


def _path(spec: str, text: str, **keywords: Any) -> Argument:
    """An argument that is a path."""
    return _value(spec, text, type=Path, **keywords)


def _here(spec: str, text: str, kind: type[Path | str] = str) -> Argument:
    """A positional argument whose default is the current directory."""
    text = f"{text} (default: current directory)"
    return _value(spec, text, nargs="?", type=kind, default=kind("."))


def _flag(spec: str, text: str) -> Argument:
    """An option without a value."""
    return _value(spec, text, action="store_true")


def _list(spec: str, text: str, **keywords: Any) -> Argument:
    """An option that may be repeated: its values are a list."""
    return _value(spec, text, action="append", default=[], **keywords)


def _numbers(spec: str, text: str) -> Argument:
    """An option for a setup.py: versions with commas between them."""
    return _value(
        f"{spec} X.Y,...", f"for a setup.py: {text}", type=lambda text: text.split(","), default=[]
    )


def _size(text: str) -> int:
    """Argument type: a size such as ``16GB``, in bytes."""
    from kernforge.system.machine import parse_size  # noqa: PLC0415 - one command needs it

    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _capability(text: str) -> str:
    """Argument type: a CUDA compute capability such as ``9.0``."""
    from kernforge.artifact.gpu import Arch  # noqa: PLC0415
    from kernforge.errors import ManifestError  # noqa: PLC0415 - two commands need it

    try:
        Arch.parse(text)
    except ManifestError as error:
        raise argparse.ArgumentTypeError(f"{error.message}: {error.hint}") from error
    return text


def _positive(text: str) -> int:
    """Argument type: a whole number of 1 or more."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


# -- arguments of several commands

COMMON = (
    _flag("--json", "print the result as one JSON document"),
    _flag("-q --quiet", "print no progress and no notes"),
    _flag("-v --verbose", "print every action, and where an error was raised"),
)
"""Options of every command, before and after its name."""

_PROJECT = _here("project", "the project", Path)
_BUILD_DIR = _path("-o --build-dir DIR", "directory of the built variants (default: PROJECT/build)")
_KERNEL = _value("what REPO-or-DIR", "owner/name, or a directory of variants")
_REGISTRY = _value(
    "--registry", "directory or URL (default: KERNFORGE_REGISTRY, else the user's own registry)"
)
_VERSION = _value(
    "--version",
    "of a published kernel: a major version, X.Y.Z, a range such as '>=1.2,<2', or a branch, tag "
    "or commit (default: the newest version; `get` needs one)",
)
_VARIANT = _value("--variant PATTERN", "only variants of such names (default: all)", default="*")
_TRUST = _flag("--trust-remote-code", "accept the kernel from any publisher")
_ARCH = _list(
    "--arch",
    "only for this GPU, such as 9.0, or 9.0+PTX for newer ones too; may be repeated",
    type=_capability,
)
_PYTEST = _list("--pytest ARGUMENT", "for pytest, such as --pytest=-x; may be repeated")
_SANDBOX = _value(
    "--sandbox",
    "isolate actions from files that are not their inputs: always, if this machine can (default), "
    "or never",
    choices=("required", "auto", "off"),
    default="auto",
)


def _variants(default: str) -> Argument:
    """The option for variants of a project; ``default`` describes its default."""
    return _list("--variant", f"a name or a pattern; may be repeated (default: {default})")


# -- write a kernel

_NEW = Command(
    "new",
    "create a kernel project that builds at once",
    _path("path", "the project; with --here the current directory by default", nargs="?"),
    _flag("--here", "make an existing directory a project, and overwrite nothing"),
    (
        _flag("--minimal", "only build.toml, a source, the binding, the Python package and a test"),
        _flag("--gradient", "with a backward kernel that torch.autograd calls"),
    ),
    _value(
        "--backends",
        "its backends (default: both)",
        nargs="+",
        default=["cuda", "cpu"],
        choices=["cuda", "cpu"],
    ),
    _value("--ci", "add jobs that build, test and publish", choices=["github", "gitlab"]),
    example="my-kernel",
    more="The last part of its path is the kernel's name: lower-case letters, digits and dashes.",
    page="tutorial",
)

_ADOPT = Command(
    "adopt",
    "convert a setup.py or load_inline project to a kernel project",
    _path("source", "a directory with a setup.py, scripts or an old build.toml, or a script"),
    _path("--out", "directory of the new project (default: the kernel's name)"),
    _value("--name", "the kernel's name (default: that of the setup.py or module)"),
    _value("--license", "SPDX name, where the source has none"),
    example="path/to/project --out my-kernel",
    more="A setup.py runs up to setup(), a script with mocks of torch: in a sandbox, in which the "
    "old project cannot be changed, or with a note where the machine has none. Code that cannot "
    "be translated is listed with file and line. A build.toml without an edition is converted to "
    "edition 5 in place.",
    page="how-to/author/adopt-a-project",
)

_SKILLS = Command(
    "skills",
    "install the documentation as a skill for coding assistants",
    _list(
        "--for",
        "write to .agents/skills (Codex and others), .claude/skills or .opencode/skills; may be "
        "repeated (default: the existing ones, else agents)",
        dest="places",
        choices=("agents", "claude", "opencode"),
    ),
    _flag("--global", "write to your home directory, for all projects"),
    example="--for claude",
    more="Run it again after an upgrade of kernforge: it replaces its files.",
    page="how-to/author/work-with-an-assistant",
)

_DEV = Command(
    "dev",
    "build, test and measure the project after every change",
    _PROJECT,
    _variants("the one for this process's torch"),
    _ARCH,
    _flag("--once", "run one round; its result is the exit code"),
    _flag("--no-test", "run no tests"),
    _flag("--no-bench", "run no benchmark"),
    _PYTEST,
    _list("--workload", "measure this workload; may be repeated (default: the first)"),
    _SANDBOX,
    example="my-kernel",
    more="It watches the project and builds for this machine.",
    page="how-to/author/use-dev-and-notebooks",
)

_TEST = Command(
    "test",
    "build for this machine, and run the project's tests",
    _PROJECT,
    _variants("the best for the CPU and for the GPU"),
    _path("--build-dir DIR", "test the variants of this directory (default: build them first)"),
    _PYTEST,
    _SANDBOX,
    example="--variant 'torch-stable-abi*-cpu-*' --pytest=-k --pytest=views",
    more="If build.toml has a repo-id, LOCAL_KERNELS is set: get_kernel in a test loads the built "
    "variant and not a published one.",
    page="how-to/author/test-a-kernel",
)

_BENCH = Command(
    "bench",
    "measure a kernel beside its peers, or a published kernel",
    _here("project PROJECT|OWNER/NAME@v1", "a project, or a published kernel", Path),
    _BUILD_DIR,
    _value("--sizes 2^10:2^30[:STEP]", "measure sized(elements) at these, or at 1000,2^20"),
    _list("--against OWNER/NAME@vN", "also measure this version, or this directory's kernel"),
    _REGISTRY,
    _value("--device", "default: cuda where there is one", choices=("cpu", "cuda")),
    _list("--mode", "cold, hot or graph (default: all)"),
    _list("--workload", "measure only this workload; may be repeated"),
    _list("--candidate", "measure only this peer beside the kernel; `kernel` for no peer"),
    _value("--rounds", "most rounds, 6 or more (default: 40)", type=_positive, default=40),
    _path("--out", "write the result to this file as JSON"),
    _path("--visual FILE", "draw a chart (.svg, .png, .pdf), or a page of all charts (.html)"),
    _flag("--profile", "also profile each workload with Nsight Compute or torch.profiler"),
    _TRUST,
    example="kernels/img2gray --out now.json --visual now.html",
    more="The exit code is 6 if a candidate is refused, or if the kernel is slower than one of "
    "--against. For a published kernel (OWNER/NAME@v1) it runs the kernel's own "
    "benchmarks/benchmark*.py.",
    page="how-to/author/measure-a-kernel",
)

# -- build and publish it

_BUILD = Command(
    "build",
    "build variants of a project, and check them",
    _PROJECT,
    _variants("those for the installed torch, or the two newest; see --list"),
    _value("--system", "build for aarch64-linux by a cross compiler (default: this machine)"),
    _ARCH,
    _BUILD_DIR,
    _value("-j --jobs", "number of jobs at once (default: number of cores)", type=_positive),
    _value("--scheduler ADDRESS", "run the actions on this Dask cluster, such as tls://farm:8786"),
    _flag("--list", "list the variants, with the reason for each; build nothing"),
    _flag("--dry-run", "print the graph of actions and run none of them"),
    _flag("--locked", "build with kernforge.lock as it is; an error if it is out of date"),
    _flag("--untrusted", "require a sandbox, and do not import the result"),
    _flag("--no-check", "do not check the built variants"),
    _SANDBOX,
    example="--variant 'torch-stable-abi*-cpu-*'",
    page="explanation/flow",
)

_CHECK = Command(
    "check",
    "check that a build runs on the machines of users",
    _here("what DIR|OWNER/NAME", "a project, a directory of variants, or a published kernel"),
    _REGISTRY,
    _VERSION,
    _VARIANT,
    _flag("--resources", "show registers, spills, shared memory and occupancy instead"),
    example="build",
    more="It reads the machine code of variants for Linux; a published kernel is not imported. "
    "`kernforge verify` verifies who built a kernel and that its files were not changed.",
    page="how-to/author/fix-findings",
)

_SHELL = Command(
    "shell",
    "open a shell with a variant's compilers, headers and package",
    _PROJECT,
    _value("--variant", "a name or a pattern (default: the newest)"),
    example="my-kernel --variant '*-cu130-*' -- nvcc --version",
    more="With a command after --, it runs that instead of the shell.",
    page="how-to/author/set-up-an-editor",
    usage="kernforge shell [options] [PROJECT] [-- COMMAND ...]",
)

_EXPORT = Command(
    "export",
    "write the files of a project for CMake, pip, Nix and editors",
    _PROJECT,
    _path("--to DIR", "directory to write to (default: the project)"),
    _list(
        "--only",
        "only these files; may be repeated (default: all)",
        choices=("cmake", "python", "nix", "editor"),
    ),
    _flag("--force", "replace existing files of your own, too"),
    example="--to ../exported",
    page="how-to/author/use-other-build-tools",
)

_PIP = Command(
    "pip",
    "run pip with kernforge's compilers, for a setup.py that imports torch",
    _value(
        "arguments install|wheel|download [OPTION...] PROJECT...",
        "of pip",
        nargs=argparse.REMAINDER,
    ),
    example="install --torch 2.11 --cuda 13.0 .",
    more="A stub of torch satisfies the imports of setup.py: neither CUDA nor torch needs to be "
    "installed. --torch X.Y, --cuda X.Y and --python X.Y select the target (default: the installed "
    "torch). TORCH_CUDA_ARCH_LIST and MAX_JOBS are obeyed.",
    page="how-to/author/build-a-setup-py-project",
    usage="kernforge pip [options] install|wheel|download [OPTION...] PROJECT...",
)

_PUBLISH = Command(
    "publish",
    "publish the built variants of a project to a registry",
    _path(
        "paths PATH",
        "the project (default: current directory), and directories of its variants (default: "
        "PROJECT/build)",
        nargs="*",
    ),
    _REGISTRY,
    _value("--repo-id", "owner/name (default: [general.hub] repo-id)"),
    _value("--version X.Y.Z", "default: the git tag, or the next that the changes allow"),
    _value(
        "--with-source",
        "publish the sources too, to build more variants (default: if the licence is open)",
        action=argparse.BooleanOptionalAction,
    ),
    _path("--sign KEY", "sign each variant with this key of `kernforge sign --new-key`"),
    _flag("--private", "make a new kernel on a hub private"),
    _flag("--dry-run", "print the version, what changed and the card; publish nothing"),
    example="--registry ~/registry --repo-id me/my-kernel",
    more="A published version never changes. Publish variants of several machines together: "
    "`kernforge publish A/build B/build`. CARD.md is a template as for kernel-builder; without one "
    "a card is generated.",
    page="how-to/release/release-a-version",
)

_MIRROR = Command(
    "mirror",
    "copy published versions between any two registries",
    _value("source SRC", "directory or URL of the registry to read"),
    _value("target DST", "directory or URL of the registry to write"),
    _value(
        "kernels KERNEL[@VERSION]",
        "owner/name, or some of its versions: owner/name@1, @1.2.3, '@>=1.2,<2', or a branch "
        "(default: all kernels that SRC lists)",
        nargs="*",
    ),
    example="hf:// /srv/registry me/my-kernel@1",
    more="Bytes, digests and signatures are kept. Run it again after an interruption: what is "
    "there is compared and skipped. A mirror checks that files are what SRC lists, not that you "
    "trust them: that is what the policy of the machine that loads a kernel is for.",
    page="how-to/platform/private-registry",
)

_SIGN = Command(
    "sign",
    "sign built variants, with a key or an identity",
    _here("built DIR", "a project, a directory of variants, or a variant", Path),
    (
        _path("--key FILE", "private key of --new-key"),
        _path("--new-key FILE", "sign nothing: make a private key, and its public key FILE.pub"),
        _value("--identity-token FILE", "OIDC token; - is standard input (default: CI's token)"),
    ),
    example="--key acme.key",
    more="`kernforge sign --new-key acme.key` makes an Ed25519 key, encrypted with a passphrase. "
    "KERNFORGE_SIGN_PASSPHRASE gives the passphrase without a terminal; empty means none.",
    page="how-to/release/prove-a-build",
)

_WHEEL = Command(
    "wheel",
    "make wheels of a build, a published kernel or a setup.py project",
    _here("kernel", "a directory of a build or of a setup.py project, or owner/name"),
    _REGISTRY,
    _VERSION,
    _value(
        "--as-version X.Y.Z",
        "version of the wheels (default: the published version, a git tag, or MAJOR.0.0)",
    ),
    _value("--name", "name of the distribution (default: the kernel's name)"),
    _variants("all"),
    _path("-o --out", "directory for the wheels (default: dist)", default=Path("dist")),
    _numbers("--torch", "releases of torch (default: the installed one, or the newest)"),
    _numbers("--cuda", "CUDA, or cpu (default: the newest that is compiled from wheels)"),
    _numbers("--python", "Pythons whose headers are here (default: this one)"),
    example="me/my-kernel --version '~=1.2' --out dist",
    more="A setup.py project gets one wheel for each torch, CUDA and Python: `kernforge "
    "wheel . --torch 2.9,2.11 --python 3.11,3.13`.",
    page="how-to/release/ship-as-wheels",
)

# -- use kernels

_SEARCH = Command(
    "search",
    "find kernels in your registry and on the Hugging Face hub",
    _value("text", "a part of the owner or the name", nargs="?", default=""),
    _flag("--local", "list only kernels that are on this machine"),
    _REGISTRY,
    example="relu",
    more="--local lists your own registry and the hub's cache without a request. `kernforge info "
    "--versions` lists the versions of one kernel.",
    page="how-to/user/load-kernels",
)

_INFO = Command(
    "info",
    "describe a kernel, and the variant that would load on this machine",
    _KERNEL,
    _REGISTRY,
    _VERSION,
    _flag("--versions", "list the published versions of the kernel instead"),
    example="acme/toy --version 1",
    page="how-to/user/load-kernels",
)

_GET = Command(
    "get",
    "download a kernel, or all locked kernels of an application",
    _here("what", "a project with a lock, or OWNER/NAME"),
    _VERSION,
    _REGISTRY,
    _path("--to PATH", "copy to a directory or a new .tar file (default: the registry's cache)"),
    (
        _list("--variant PATTERN", "only these, '*' for all; may be repeated"),
        _list(
            "--platform PLATFORM",
            "for a machine such as torch2.11-cu130-x86_64-linux, as `kernforge doctor --platform` "
            "prints it there; may be repeated (default: this machine)",
        ),
        _value("--backend", "cpu, or the backend of the installed torch (default)"),
    ),
    _TRUST,
    example="me/my-kernel --version 1",
    more="All files are verified. For a machine without a network, copy the variants that it "
    "needs: `kernforge get my-app --to kernels.tar --platform torch2.11-cu130-x86_64-linux`.",
    page="how-to/user/install-without-a-network",
)

_RUN = Command(
    "run",
    "run a program with kernforge in the place of `kernels`",
    _value("--as-kernels VERSION", "answer as this version (default: 0.18.2)", nargs="?", const=""),
    _path("--write-wheel DIR", "run nothing: write a wheel named kernels to this directory"),
    example="--as-kernels -- python app.py",
    more="`import kernels` gives kernforge in the program and its child processes. The wheel of "
    "--write-wheel does the same in an environment, and satisfies requirements on `kernels`.",
    page="how-to/user/switch-from-kernels",
    usage="kernforge run [options] -- COMMAND ...",
)

_LOCK = Command(
    "lock",
    "pin an application's kernels, or a kernel project's compilers",
    _PROJECT,
    _REGISTRY,
    (
        _value("--upgrade REPO", "take the newest version of these kernels, or of all", nargs="*"),
        _flag("--check", "write nothing; an error if the lock is out of date"),
    ),
    _list("--cuda", "also lock this CUDA version, such as 13.2"),
    _list("--torch", "also lock this torch version, such as 2.13"),
    example="my-app --upgrade me/my-kernel",
    more="For an application it reads pyproject.toml and writes kernels.lock. For a project with "
    "a build.toml it pins compilers and headers in kernforge.lock.",
    page="how-to/user/lock-kernels",
)

_VERIFY = Command(
    "verify",
    "verify who built a kernel, and that its files were not changed",
    _KERNEL,
    _REGISTRY,
    _VERSION,
    _VARIANT,
    _list("--key FILE", "accepted public key (default: the trust policy's signers)", type=Path),
    _list(
        "--identity",
        "accepted identity of a GitHub workflow; a trust policy can name other issuers",
    ),
    _flag("--allow-unsigned", "accept a variant without a signature"),
    _flag("--allow-no-digest", "accept a variant without a digest"),
    _flag("--rebuild", "build each variant again from its sources, and compare"),
    _path("--source DIR", "checkout to rebuild from (default: the statement's repository)"),
    example="acme/toy --version 1 --key acme.key.pub",
    more="It verifies signature, digest and provenance statement of each variant. `kernforge "
    "check` finds variants that would not run.",
    page="explanation/trust",
)

_SERVE = Command(
    "serve",
    "serve a registry to the clients of the Hugging Face hub",
    _value("registry", "a directory, or the URL of another registry"),
    _value("--host", "address to listen at (default: 127.0.0.1)", default="127.0.0.1"),
    _value("--port", "default: 8000", type=_positive, default=8000),
    _path("--tokens FILE", "who may read what, in TOML (default: everybody everything)"),
    _list("--trusted OWNER", "mark an owner as a trusted publisher; may be repeated"),
    _value("--url", "address that clients use, where a proxy stands before it"),
    example="~/registry --trusted acme",
    more="`kernels`, `huggingface_hub` and transformers load from it with "
    "HF_ENDPOINT=http://127.0.0.1:8000. It only reads. Each request is a line of the output, with "
    "--json a JSON document.",
    page="how-to/platform/serve-a-registry",
)

# -- this machine

_DOCTOR = Command(
    "doctor",
    "diagnose this machine: compiler, driver, torch, disk, network",
    _flag("--offline", "do not contact the package indexes"),
    _flag("--platform", "print the platform of this machine, for `kernforge get --platform`"),
    example="--offline",
    page="how-to/platform/fix-a-machine",
)

_CACHE = Command(
    "cache",
    "show or trim the store of compilers and results",
    _value("--trim SIZE", "evict the least recently used entries until the rest fits", type=_size),
    example="--trim 20GB",
    page="how-to/platform/share-results",
)

GROUPS = {
    "write a kernel": (_NEW, _ADOPT, _SKILLS, _DEV, _TEST, _BENCH),
    "build and publish it": (_BUILD, _CHECK, _SHELL, _EXPORT, _PIP, _PUBLISH, _SIGN, _WHEEL),
    "use kernels": (_SEARCH, _INFO, _GET, _RUN, _LOCK, _VERIFY, _SERVE, _MIRROR),
    "this machine": (_DOCTOR, _CACHE),
}
"""The commands in groups with titles, in the order of the help."""

COMMANDS = {command.name: command for group in GROUPS.values() for command in group}

FORMER = {
    "apidiff": "publish --dry-run",
    "benchmark": "bench",
    "card": "publish --dry-run",
    "check-abi": "check",
    "completion": "--print-completion",
    "create-pyproject": "export",
    "devshell": "shell",
    "download": "get",
    "fill-card": "publish --dry-run",
    "init": "new --here",
    "install": "get",
    "keygen": "sign --new-key",
    "list": "search --local",
    "list-variants": "build --list",
    "lock-toolchain": "lock",
    "migrate": "adopt",
    "platform": "doctor --platform",
    "profile": "bench --profile",
    "reproduce": "verify --rebuild",
    "resources": "check --resources",
    "shim-wheel": "run --write-wheel",
    "update-build": "adopt",
    "upload": "publish",
    "variants": "build --list",
    "versions": "info --versions",
}
"""Former names of commands and names in other tools, with their names here."""
