# SPDX-License-Identifier: Apache-2.0
"""The table of commands: what each is for, in which group, with an example."""

from __future__ import annotations

from dataclasses import dataclass

GROUPS = {
    "write": "write a kernel",
    "build": "build it",
    "publish": "publish it",
    "use": "use kernels",
    "machine": "this machine",
}
"""The groups of commands with their titles, in the order of the help."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A command of the command line.

    Attributes:
        group: one of ``GROUPS``.
        name: what a user types.
        summary: a line for the list of commands, beginning in lower case, without a full stop.
        example: arguments of an example.
        more: sentences for the command's own help: above all, how it differs from a neighbour.
        page: the page of the documentation about it, as ``errors.page`` takes it.
        others: names that other tools have for it, which are answered with a suggestion.
    """

    group: str
    name: str
    summary: str
    example: str
    more: str = ""
    page: str = ""
    others: tuple[str, ...] = ()


COMMANDS = (
    # -- write
    Verb(
        "write",
        "new",
        "write a new kernel project that can be built at once",
        "my-kernel",
        "With --here it makes an existing directory a project, and overwrites nothing. With --op "
        "it adds an operator to a project: source, binding, Python function and test.",
        page="tutorial",
        others=("create", "scaffold", "startproject", "op"),
    ),
    Verb(
        "write",
        "adopt",
        "make a kernel project of a setup.py project, or of a script with load_inline",
        "path/to/project --out my-kernel",
        "It changes nothing in the old project; a setup.py is run in a sandbox up to setup(). What "
        "it cannot translate it lists with file and line.",
        page="how-to/author/adopt-a-project",
        others=("convert", "import", "port"),
    ),
    Verb(
        "write",
        "skills",
        "give a coding assistant the pages that it needs to work with kernforge",
        "--for claude",
        "Run it again after an upgrade of kernforge: it replaces what it wrote.",
        page="how-to/author/work-with-an-assistant",
        others=("skill", "agents"),
    ),
    Verb(
        "write",
        "dev",
        "after every change: build, test and measure the project",
        "my-kernel",
        "It watches the project and builds for this machine.",
        page="how-to/author/use-dev-and-notebooks",
        others=("watch",),
    ),
    Verb(
        "write",
        "test",
        "build for this machine, and run the project's tests on the result",
        "--variant 'torch-stable-abi*-cpu-*' --pytest=-k --pytest=views",
        "LOCAL_KERNELS names the result, if build.toml has a repo-id: get_kernel in a test loads "
        "it, and not what is published.",
        page="how-to/author/test-a-kernel",
        others=("pytest",),
    ),
    Verb(
        "write",
        "bench",
        "measure the kernel of a project beside its peers, or a published kernel",
        "kernels/img2gray --out now.json --visual now.html",
        "It ends with exit code 6 if a candidate is refused, or if the kernel is slower than "
        "--baseline or --against. Of a published kernel (OWNER/NAME@v1) it runs the "
        "benchmarks/benchmark*.py that it brings.",
        page="how-to/author/measure-a-kernel",
        others=("benchmark", "measure", "perf", "profile", "ncu", "nsys"),
    ),
    Verb(
        "write",
        "migrate",
        "convert a build.toml without an edition to edition 5",
        "--license Apache-2.0",
        page="how-to/author/build-an-existing-project",
        others=("update-build", "upgrade"),
    ),
    # -- build
    Verb(
        "build",
        "build",
        "build variants of a project, and check them",
        "--variant 'torch-stable-abi*-cpu-*'",
        "With --list it lists the variants with the reason for each, and builds nothing.",
        page="explanation/flow",
        others=("make", "compile", "build-and-copy", "bundle", "list-variants", "matrix"),
    ),
    Verb(
        "build",
        "check",
        "check that what you built will run on users' machines",
        "build",
        "It reads the machine code of a build, that for Linux. `kernforge verify` answers who "
        "built a kernel, and whether its files were changed since. With --resources it shows "
        "registers, spills, shared memory and occupancy instead.",
        page="how-to/author/fix-findings",
        others=("check-abi", "lint", "validate", "occupancy", "cuobjdump"),
    ),
    Verb(
        "build",
        "shell",
        "open a shell with a variant's compilers, headers and package",
        "my-kernel --variant '*-cu130-*' -- nvcc --version",
        "With a command after --, it runs that instead of the shell.",
        page="how-to/author/set-up-an-editor",
        others=("develop", "devshell", "env"),
    ),
    Verb(
        "build",
        "export",
        "write the files with which CMake, pip, Nix and editors use a project",
        "--to ../exported",
        page="how-to/author/use-other-build-tools",
        others=("create-pyproject", "build2cmake", "cmake"),
    ),
    Verb(
        "build",
        "pip",
        "run pip with kernforge's compilers, for projects whose setup.py imports torch",
        "install --torch 2.11 --cuda 13.0 .",
        "A stand-in answers the setup.py in torch's place: neither CUDA nor torch needs to be "
        "installed to build. TORCH_CUDA_ARCH_LIST and MAX_JOBS are obeyed.",
        page="how-to/author/build-a-setup-py-project",
    ),
    # -- publish
    Verb(
        "publish",
        "publish",
        "publish the built variants of a project to a registry",
        "--registry ~/registry --repo-id me/my-kernel",
        "A published version never changes. Variants of several machines are published together: "
        "`kernforge publish A/build B/build`. A CARD.md for kernel-builder is filled as there; a "
        "project without one gets a card that is generated; --card prints it.",
        page="how-to/release/release-a-version",
        others=("upload", "push", "release", "fill-card", "create-and-upload-card"),
    ),
    Verb(
        "publish",
        "apidiff",
        "list what changed for users between two versions",
        "me/my-kernel@1.2.0 build",
        page="how-to/release/release-a-version",
        others=("diff", "compare"),
    ),
    Verb(
        "publish",
        "sign",
        "sign built variants, with a key or an identity",
        "--key acme.key",
        "`kernforge sign --new-key acme.key` makes the Ed25519 key to sign with.",
        page="how-to/release/prove-a-build",
    ),
    Verb(
        "publish",
        "wheel",
        "make wheels for pip, of a build, of a published kernel or of a setup.py project",
        "me/my-kernel --version '~=1.2' --out dist",
        "For a setup.py project it builds one wheel for each torch, CUDA and Python: "
        "`kernforge wheel . --torch 2.9,2.11 --python 3.11,3.13`.",
        page="how-to/release/ship-as-wheels",
        others=("to-wheel", "package"),
    ),
    # -- use
    Verb(
        "use",
        "search",
        "find kernels in your registry and at the Hugging Face hub, or on this machine",
        "relu",
        "With --local it lists those of your own registry and those in the hub's cache, without a "
        "request. `kernforge info --versions` lists the versions of one kernel.",
        page="how-to/user/load-kernels",
        others=("find", "ls", "installed"),
    ),
    Verb(
        "use",
        "info",
        "describe a kernel, and say what would load on this machine",
        "acme/toy --version 1",
        page="how-to/user/load-kernels",
        others=("show", "describe", "tags"),
    ),
    Verb(
        "use",
        "get",
        "fetch a kernel, or all kernels that an application locked",
        "me/my-kernel --version 1",
        "Their files are verified. It fetches what this machine loads, or variants for other "
        "machines, and can copy them: `kernforge get my-app --to kernels.tar --platform "
        "torch2.11-cu130-x86_64-linux`.",
        page="how-to/user/install-without-a-network",
        others=("install", "pull", "fetch", "add", "sync", "mirror"),
    ),
    Verb(
        "use",
        "run",
        "run a program with kernforge in the place of `kernels`",
        "--as-kernels -- python app.py",
        "`import kernels` is answered by kernforge in the program and in those that it starts. "
        "With --write-wheel it writes a wheel named `kernels` instead: installed, it satisfies "
        "requirements on `kernels` and answers `import kernels`.",
        page="how-to/user/switch-from-kernels",
        others=("exec", "as-kernels", "shim"),
    ),
    Verb(
        "use",
        "lock",
        "pin the kernels of an application, or the compilers of a kernel project",
        "my-app --upgrade me/my-kernel",
        "Of an application it reads pyproject.toml and writes kernels.lock. Of a directory with a "
        "build.toml it pins compilers and headers in kernforge.lock, for builds.",
        page="how-to/user/lock-kernels",
        others=("freeze", "update-toolchain"),
    ),
    Verb(
        "use",
        "verify",
        "verify who built a kernel, and that its files were not changed",
        "acme/toy --version 1 --key acme.key.pub",
        "It verifies signature, digest and provenance statement of each variant. With --rebuild it "
        "builds them again from their sources, and compares. `kernforge check` finds what would "
        "not run.",
        page="explanation/trust",
        others=("audit", "attest", "rebuild"),
    ),
    # -- machine
    Verb(
        "machine",
        "doctor",
        "find problems of this machine for kernels",
        "--offline",
        page="how-to/platform/fix-a-machine",
        others=("diagnose", "debug", "host"),
    ),
    Verb(
        "machine",
        "cache",
        "show what the store of compilers and results holds, or trim it",
        "--trim 20GB",
        page="how-to/platform/share-results",
        others=("gc", "store", "prune"),
    ),
)

BY_NAME = {command.name: command for command in COMMANDS}

FORMER = {
    "add-op": "new --op",
    "card": "publish --card",
    "completion": "--print-completion",
    "download": "get",
    "init": "new --here",
    "keygen": "sign --new-key",
    "list": "search --local",
    "lock-toolchain": "lock",
    "platform": "doctor --platform",
    "reproduce": "verify --rebuild",
    "resources": "check --resources",
    "schema": "export --only schema",
    "shim-wheel": "run --write-wheel",
    "variants": "build --list",
    "versions": "info --versions",
}
"""Former names of commands, with the words that replaced them."""
