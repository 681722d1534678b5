# SPDX-License-Identifier: Apache-2.0
"""Make wheels of built variants: read and verify the variants, plan the wheels, write them.

The package in a wheel has the files of the variant's directory under the kernel's name. A variant
with an extension gets one more module: see ``_SHARED``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernforge.artifact import directories
from kernforge.artifact.directories import BuiltVariant
from kernforge.artifact.metadata import FILE
from kernforge.errors import IntegrityError, UsageError
from kernforge.loader.search import Search, fetch_variant
from kernforge.registry.api import find, refuse_moved, request_or_newest
from kernforge.registry.directory import Registries
from kernforge.registry.names import versions
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.wheel import archive as wheel_archive, plan as wheel_plan
from kernforge.wheel.plan import WheelPlan, is_library, libraries

# A process can register an operator namespace once, and a build has one namespace for all ways to
# load it. The loaders import a build's extension as <id>.<id>, so a wheel uses the same name: the
# second import finds the extension there. Python prefers this package to the library next to it.
_SHARED = '''\
"""The extension of this package, shared with loaders of the same build in this process."""

import filecmp
import importlib.util
import sys
from pathlib import Path

_LIBRARY = Path(__file__).parents[1] / "{library}"
_NAME = "{name}.{name}"
_BACKEND = "{backend}"
_WHEELS = {wheels}


def _extension():
    loaded = sys.modules.get(_NAME)
    if loaded is None:
        spec = importlib.util.spec_from_file_location(_NAME, _LIBRARY)
        try:
            loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
        except ImportError as error:
            _refuse_torch(error)
            raise
        sys.modules[_NAME] = loaded
    elif not filecmp.cmp(loaded.__file__, _LIBRARY, shallow=False):
        raise ImportError(
            f"{{_LIBRARY}} cannot be loaded: another build called {name} is loaded from "
            f"{{loaded.__file__}}; start a new process"
        )
    return loaded


def _refuse_torch(error):
    """Say which wheel fits, if the installed torch is for another backend."""
    import torch

    cuda = torch.version.cuda or ""
    here = f"cu{{cuda.split('.')[0]}}" if cuda else "rocm" if torch.version.hip else "cpu"
    if _BACKEND.startswith(here):
        return
    fitting = [wheel for backend, wheel in _WHEELS if backend.startswith(here)]
    way = " or ".join(f"pip install '{{wheel}}'" for wheel in fitting)
    raise ImportError(
        f"{{_LIBRARY}} is built for {{_BACKEND}}, and torch {{torch.__version__}} for {{here}} is "
        f"installed: {{way or 'no wheel was made for that; install another torch'}}"
    ) from error


sys.modules[__name__] = _extension()
'''
_LICENCE = re.compile(r"(?:licen[cs]e|copying|notice|authors)(?:[-.].*)?", re.IGNORECASE)
_CARDS = ("CARD.md", "README.md")
_TEMPLATE = re.compile(r"\{\{|\{%")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltWheel:
    """A wheel, with its hex SHA-256."""

    variant: str
    plan: WheelPlan
    path: Path
    sha256: str


def from_directory(directory: Path) -> list[BuiltVariant]:
    """The variants of a directory, of ``build/`` in it, or the directory itself."""
    return [BuiltVariant.read(path) for path in directories.variants(directory.absolute())]


def from_registry(
    registry: Registries,
    repo_id: str,
    version: int | str | None,
    revision: str | None,
    environment: Environment,
) -> tuple[list[BuiltVariant], str | None]:
    """The variants of a published kernel that the trust policy admits, and their version ``X.Y.Z``.

    Args:
        version: a major version, ``X.Y.Z`` or a range; None takes the newest if ``revision`` is
            None too.
        environment: names the trust policies. A user who makes a wheel of a kernel trusts it.

    Raises:
        RegistryError: there is no such kernel, version or revision, or it has moved.
        TrustError: the trust policy refuses a variant.
        IntegrityError: a variant has no digest.
    """
    answer = find(registry, request_or_newest(registry, repo_id, version, revision))
    refuse_moved(answer)
    search = Search(registry, None, environment, trust_remote_code=True)
    sources: list[BuiltVariant] = []
    for name in answer.variants:
        node = fetch_variant(search, answer, name)
        if node.metadata.digest is None:
            raise IntegrityError(
                f"{node.path / FILE} has no digest, so the variant cannot be verified",
                hint="build and publish the kernel again: old builds have no digest",
            )
        sources.append(node)
    refs = answer.registry.refs(repo_id)
    tagged = [
        tag[1:]
        for (major, *_), tag in versions(refs).items()
        if answer.major in {None, major} and refs[tag] == answer.commit
    ]
    return sources, tagged[-1] if tagged else None


def make(
    sources: Sequence[BuiltVariant],
    out: Path,
    home: Path,
    *,
    version: str | None = None,
    patterns: Sequence[str] = (),
    name: str | None = None,
    card: str = "",
    seconds: int = 0,
) -> list[BuiltWheel]:
    """Write the wheels of a kernel's variants for Linux.

    Args:
        sources: every variant of one version.
        home: ``KERNFORGE_HOME``.
        version: version of the kernel; the default is its major version and ``.0.0``.
        patterns: shell patterns of the variants to write; none writes all.
        name: name of the distribution; the default is the kernel's name.
        card: Markdown that describes the kernel; the default is that of its directory.
        seconds: time of all members in seconds since 1970, as in ``SOURCE_DATE_EPOCH``.

    Raises:
        UsageError: no variant matches the patterns, or two variants have the same wheel name.
        IntegrityError: a variant differs from its digest.
        CheckError: no wheel tag can express what a library needs.
    """
    directories.refuse_mixture(sources, version)
    wanted = [
        each
        for each in sources
        if each.variant.os in {"", "linux"}
        and (not patterns or any(fnmatch.fnmatchcase(each.path.name, p) for p in patterns))
    ]
    if not wanted:
        names = ", ".join(source.path.name for source in sources)
        raise UsageError(
            f"no variant matches {', '.join(patterns)}", hint=f"the variants are {names}"
        )
    planned: dict[str, tuple[BuiltVariant, dict[str, Path], WheelPlan]] = {}
    for source in wanted:
        metadata, paths = source.metadata, source.verified_files()
        own_card, licences = _texts(source)
        plan = wheel_plan.plan(
            source.variant,
            metadata,
            libraries(paths, lambda name: source.path.joinpath(name).read_bytes()),  # noqa: B023
            version=version or f"{metadata.version}.0.0",
            siblings=[each.variant for each in sources],
            name=name,
            card=card or own_card,
            licences=licences,
        )
        other, *_ = planned.setdefault(plan.file, (source, paths, plan))
        if other is not source:
            raise UsageError(
                f"the wheels of {other.path.name} and {source.path.name} have the same name, "
                f"{plan.file}",
                hint="choose one of them with --variant",
            )
    wheels = []
    for source, paths, plan in planned.values():
        pins = {(str(e.variant.backend), wheel_plan.pinned(plan, e.variant)) for e in sources}
        members = _members(paths, plan, source, sorted(pins))
        path = wheel_archive.write(plan, members, out, home, seconds=seconds)
        digest = files.sha256_file(path)
        wheels.append(BuiltWheel(variant=source.path.name, plan=plan, path=path, sha256=digest))
    return wheels


def _texts(source: BuiltVariant) -> tuple[str, dict[str, bytes]]:
    """The card and the licences of a variant's directory, or of its project or snapshot."""
    parent = source.path.parent
    root = parent.parent if parent.name == "build" else parent
    bounds = (root.resolve(), source.link_root.resolve())

    def stays(path: Path) -> bool:
        """Whether a path is a file, and no link to one elsewhere on this machine."""
        return path.is_file() and any(path.resolve().is_relative_to(bound) for bound in bounds)

    candidates = (root / name for name in _CARDS)
    cards = [path.read_text("utf-8", errors="replace") for path in candidates if stays(path)]
    licences: dict[str, bytes] = {}
    for directory in (source.path, root):
        for path in sorted(directory.iterdir()):
            if _LICENCE.fullmatch(path.name) and path.suffix != ".py" and stays(path):
                licences.setdefault(path.name, path.read_bytes())
    # A template, which publishing fills, is not a card.
    card = next((text for text in cards if not _TEMPLATE.search(text)), "")
    return card, dict(sorted(licences.items()))


def _members(
    paths: dict[str, Path],
    plan: WheelPlan,
    source: BuiltVariant,
    siblings: Sequence[tuple[str, str]],
) -> dict[str, Path | bytes]:
    """The package's files by their path in the wheel.

    Args:
        siblings: the backend and the requirement of each wheel of this version.
    """
    metadata, backend = source.metadata, str(source.variant.backend)
    members: dict[str, Path | bytes] = {f"{plan.module}/{n}": path for n, path in paths.items()}
    for library, path in paths.items():
        # Python imports it; tvm-ffi opens other libraries.
        is_named = library.partition(".")[0] == metadata.id and is_library(library)
        if is_named and b"PyInit_" in path.read_bytes():
            text = _SHARED.format(
                library=library, name=metadata.id, backend=backend, wheels=siblings
            )
            members[f"{plan.module}/{metadata.id}/__init__.py"] = text.encode()
    return members
