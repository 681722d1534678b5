# SPDX-License-Identifier: Apache-2.0
"""The sources that a manifest names, among the files of a project.

A name with ``*`` or ``?`` is a pattern for the files that match it when the project is read: ``*``
and ``?`` stay within a directory, ``**`` stands for any number of them. kernel-builder has no
patterns; ``kernforge export`` writes the files out for it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from kernforge.manifest.document import Manifest
from kernforge.manifest.mistakes import Mistake, did_you_mean
from kernforge.manifest.model import Path, Torch, TorchNoarch

_PARTS = {"*": "[^/]*", "?": "[^/]"}


def is_pattern(name: str) -> bool:
    """Whether a name in ``src`` stands for the files that match it."""
    return "*" in name or "?" in name


def expanded(manifest: Manifest, paths: Collection[str]) -> Manifest:
    """The manifest with the files in the place of patterns, sorted.

    Args:
        paths: paths of the project's files, relative to the project, with ``/``.
    """
    framework = manifest.framework
    kernels = {
        name: kernel.model_copy(update={"src": _listed(kernel.src, paths)})
        if any(map(is_pattern, kernel.src))
        else kernel
        for name, kernel in manifest.kernels.items()
    }
    if not isinstance(framework, TorchNoarch) and any(map(is_pattern, framework.src)):
        framework = framework.model_copy(update={"src": _listed(framework.src, paths)})
    return replace(manifest, framework=framework, kernels=kernels)


def check_files(manifest: Manifest, paths: Collection[str]) -> list[Mistake]:
    """A mistake for each source that the manifest names and the project lacks."""
    problems = ((path, _problem(src, paths)) for path, src in _named(manifest))
    return [Mistake(path=path, problem=problem) for path, problem in problems if problem]


def _named(manifest: Manifest) -> Iterator[tuple[Path, str]]:
    """Each source with its place in the file."""
    framework = manifest.framework
    if not isinstance(framework, TorchNoarch):
        table = "torch" if isinstance(framework, Torch) else "tvm-ffi"
        yield from (((table, "src", n), src) for n, src in enumerate(framework.src))
    for name, kernel in manifest.kernels.items():
        yield from ((("kernel", name, "src", n), src) for n, src in enumerate(kernel.src))


def _problem(src: str, paths: Collection[str]) -> str:
    name = posixpath.normpath(src)
    if name in paths:
        return ""
    if posixpath.isabs(src):
        return "an absolute path; sources are named relative to the directory of build.toml"
    if name.startswith("../"):
        return "outside of the project; a build reads only files below the directory of build.toml"
    if not is_pattern(src):
        return f"no such file{did_you_mean(src, paths)}"
    return "" if _matching(src, paths) else "no file matches"


def _listed(sources: Collection[str], paths: Collection[str]) -> tuple[str, ...]:
    groups = (_matching(src, paths) if is_pattern(src) else [src] for src in sources)
    return tuple(dict.fromkeys(path for each in groups for path in each))


def _matching(pattern: str, paths: Collection[str]) -> list[str]:
    parts = posixpath.normpath(pattern).split("/")
    text = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            text += ".*" if last else "(?:.*/)?"
        else:
            text += "".join(_PARTS.get(letter, re.escape(letter)) for letter in part)
            text += "" if last else "/"
    return sorted(path for path in paths if re.fullmatch(text, path))
