# SPDX-License-Identifier: Apache-2.0
"""The functions behind the client's command line; ``kernels`` itself is ``kernforge`` here."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any, NoReturn

from kernforge import documents
from kernforge.compat import hub
from kernforge.compat.metadata import Metadata
from kernforge.compat.resolvers import extract_dependency_locks, resolve_hub_kernel
from kernforge.compat.values import KernelDependency, KernelLocks, KernelVersion
from kernforge.compat.variants import (
    ArchVariant,
    Variant,
    get_variants,
    get_variants_local,
    parse_variant,
    resolve_variants,
    variants_trace_str,
)
from kernforge.errors import NoVariantError
from kernforge.loader.api import find
from kernforge.system import files

log = logging.getLogger("kernels.cli")


def _out(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _refuse(text: str) -> NoReturn:
    sys.stderr.write(f"{text}\n")
    raise SystemExit(1)


def print_kernel_info(
    kernel: str,
    *,
    revision: str | None = None,
    version: int | None = None,
    json_output: bool = False,
) -> None:
    """Print what a kernel is, in a directory or on the hub."""
    path = Path(kernel)
    if path.is_dir():
        if revision is not None or version is not None:
            _refuse("--revision and --version cannot be used with a local path")
        info = _local_info(path)
    else:
        if revision is not None and version is not None:
            _refuse("Only one of --revision or --version can be specified")
        info = _hub_info(kernel, revision, version)
    if json_output:
        _out(json.dumps(info, indent=2))
        return
    words = {
        "repo_id": "Repository",
        "revision": "Revision",
        "path": "Path",
        "name": "Name",
        "version": "Version",
        "kernels_minver": "Minimum kernels version",
        "license": "License",
        "upstream": "Upstream",
        "source": "Source",
        "python_depends": "Python dependencies",
        "backends": "Backends",
    }
    for key, word in words.items():
        if key in info:
            value = info[key]
            text = ", ".join(value) if isinstance(value, list) else value
            _out(f"{word}: {'-' if text in {None, ''} else text}")


def _hub_info(repo_id: str, revision: str | None, version: int | None) -> dict[str, Any]:
    name = revision
    if version is not None:
        name = f"v{version}"
    elif name is None:
        versions = hub.available_versions(repo_id, local_files_only=hub.is_offline())
        name = f"v{max(versions)}" if versions else "main"
    revision = name if version is None else None
    registry, commit = find(repo_id, version=version, revision=revision)
    names = registry.variants(repo_id, commit)
    if not names:
        _refuse(f"No build variants found in {repo_id} (revision: {name})")
    document = Metadata.from_bytes(registry.metadata(repo_id, commit, names[0]))
    variants = [parse_variant(text) for text in names]
    return {"repo_id": repo_id, "revision": name, **_described(document, variants)}


def _local_info(path: Path) -> dict[str, Any]:
    variants = get_variants_local(path / "build")
    if not variants:
        _refuse(f"No build variants found in: {path / 'build'}")
    documents = [path / "build" / variant.variant_str / "metadata.json" for variant in variants]
    first = next((file for file in documents if file.exists()), None)
    document = None if first is None else Metadata.read_from_file(first)
    return {"path": str(path), **_described(document, variants)}


def _described(document: Metadata | None, variants: list[Variant]) -> dict[str, Any]:
    backends = {
        variant.arch.backend.name if isinstance(variant, ArchVariant) else variant.arch.backend_name
        for variant in variants
    }
    known: dict[str, Any] = {}
    if document is not None:
        known = {
            "name": str(document.name),
            "version": document.version,
            "kernels_minver": document.ours.kernels_minver,
            "license": document.license,
            "upstream": document.upstream,
            "source": document.source,
            "python_depends": document.python_depends,
        }
    return {**known, "backends": sorted(backends)}


def download_kernels(args: Any) -> None:
    """Fetch what a project's lock names; ``args`` has ``project_dir`` and ``all_variants``."""
    path = args.project_dir / "kernels.lock"
    if not path.exists():
        _refuse(f"No kernels.lock file found in: {args.project_dir}")
    api = hub.get_hf_api()
    failed = False
    for dependency, lock in KernelLocks.from_json(path.read_text()).items():
        log.info("downloading %s at %s", dependency.repo_id, lock.commit)
        try:
            if args.all_variants:
                registry, commit = find(dependency.repo_id, revision=lock.commit)
                for name in registry.variants(dependency.repo_id, commit):
                    registry.fetch(dependency.repo_id, commit, name)
            else:
                found = resolve_hub_kernel(
                    dependency.repo_id, api=api, backend=None, revision=lock.commit
                )
                found.install(api=api)
        except NoVariantError as error:
            sys.stderr.write(f"{error}\n")
            failed = True
    if failed:
        raise SystemExit(1)


def lock_kernels(args: Any) -> None:
    """Lock the kernels of a project; ``args`` has ``project_dir``."""
    data = documents.parse_toml((args.project_dir / "pyproject.toml").read_bytes())
    wanted = data.get("tool", {}).get("kernels", {}).get("dependencies", {})
    depends = [
        KernelDependency(repo_id, KernelVersion.Version(version))
        for repo_id, version in wanted.items()
    ]
    locks = extract_dependency_locks(depends, api=hub.get_hf_api())
    files.write_atomic(args.project_dir / "kernels.lock", locks.to_json())


def kernel_info(args: Any) -> None:
    """``print_kernel_info`` of a parsed command line."""
    print_kernel_info(
        args.kernel, revision=args.revision, version=args.version, json_output=args.json
    )


def kernel_versions(args: Any) -> None:
    """``print_kernel_versions`` of a parsed command line."""
    print_kernel_versions(args.repo_id)


def print_kernel_versions(repo_id: str) -> None:
    """Print the versions of a kernel, and which of their variants fit."""
    versions = hub.available_versions(repo_id, local_files_only=hub.is_offline())
    if not versions:
        _out(f"Repository does not support kernel versions: {repo_id}")
    api = hub.get_hf_api()
    for version, ref in sorted(versions.items()):
        variants = get_variants(api, repo_id=repo_id, revision=ref.ref)
        _out(f"Version {version}:\n\n{variants_trace_str(resolve_variants(variants, None)[1])}")
