# SPDX-License-Identifier: Apache-2.0
"""Lay the directories of variants out as the hub has them, with a statement of how each was made.

Package, extension, ``_ops.py``, ``provenance.intoto.json``, ``metadata.json``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path

from kernforge._version import __version__
from kernforge.artifact.integrity import digest_tree, hash_bytes, refuse_own_files
from kernforge.artifact.metadata import FILE, Digest, KernelDepend, Metadata, Provenance
from kernforge.artifact.variant import Variant
from kernforge.builder import provenance, results
from kernforge.builder.graph import Artifact, Plan
from kernforge.builder.provenance import Origin, Statement
from kernforge.builder.results import STORE_KIND
from kernforge.builder.workspace import Workspace
from kernforge.errors import IntegrityError
from kernforge.project.api import Project
from kernforge.source import op_schema
from kernforge.system import files
from kernforge.toolchain.lockfile import Lock


def lay_out_variants(
    plan: Plan, workspace: Workspace, origin: Origin, lock: Lock, out: Path
) -> dict[str, Path]:
    """Lay out each variant whose results are complete; an identical one is left in place.

    Args:
        out: directory that will hold a directory for each variant; an old one of the same name
            is replaced as a whole.

    Returns:
        The directory of each, by name.
    """
    project, store = workspace.project, workspace.store
    modules = {action.key: action.outputs[0] for action in plan.actions}
    variants = {}
    for artifact in plan.artifacts:
        name, link = artifact.target.name, artifact.extension
        if link and not store.has(STORE_KIND, link):
            continue
        variants[name] = final = out / name
        module = modules[link] if link else ""
        statement = provenance.state(name, origin, lock, results.records(plan, artifact, store))
        texts, hashes = _contents(project, artifact, module, statement)
        document = _metadata(project, artifact, statement, hashes).to_json()
        if _is_there(final, document, hashes):
            continue
        refuse_own_files(final, hashes)
        with files.staging(out) as staged:
            tree = staged / name
            files.make_dir(tree)
            for path in artifact.package.keys() - texts:
                files.copy_file(project.files[artifact.package[path]], tree / path)
            if link:
                results.copy_output(store, link, module, tree / module)
            for path, text in texts.items():
                files.write_new(tree / path, text)
            if digest_tree(tree).files != hashes:
                raise IntegrityError(
                    f"a file of {name} changed while the build ran", hint="build again"
                )
            files.write_new(tree / FILE, document)
            files.replace_tree(tree, final)
    return variants


def _contents(
    project: Project, artifact: Artifact, module: str, statement: Statement
) -> tuple[dict[str, str], dict[str, str]]:
    """Generated files of a variant, and the base64 SHA-256 of every file but the document.

    Args:
        module: file of the extension; empty without machine code.
    """
    texts = {"_ops.py": ops_module(artifact.ops_name, artifact.target.variant)}
    digests = project.sources.digests
    hashes = {path: _base64(digests[name]) for path, name in artifact.package.items()}
    hashes["_ops.py"] = _hash(texts["_ops.py"])
    if module:
        hashes[module] = _base64(statement.actions[-1].outputs[module])
    texts[provenance.FILE] = provenance.write(replace(statement, subjects=hashes))
    hashes[provenance.FILE] = _hash(texts[provenance.FILE])
    return texts, dict(sorted(hashes.items()))


def _is_there(path: Path, document: bytes, hashes: Mapping[str, str]) -> bool:
    """Whether a directory holds exactly this variant."""
    if path.is_symlink() or not (path / FILE).is_file():
        return False
    try:
        return (path / FILE).read_bytes() == document and digest_tree(path).files == hashes
    except IntegrityError:
        return False


def _hash(text: str) -> str:
    return hash_bytes(text.encode(), "sha256")


def _base64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def ops_module(name: str, variant: Variant) -> str:
    """Text of ``_ops.py`` for an op namespace ``_<kernel>_<backend>_<id>``."""
    if variant.framework == "tvm-ffi":
        return _template("tvm-ffi").format(name=name)
    if not variant.is_noarch:
        return _template("compiled").format(name=name)
    # One build of Python alone may serve several backends, so its name follows the torch that runs
    # it.
    rest, _, unique = name.removeprefix("_").rpartition("_")
    return _template("noarch").format(stem=rest.rpartition("_")[0], unique=unique)


def _template(kind: str) -> str:
    path = resources.files("kernforge") / "data" / "ops" / f"{kind}.txt"
    return path.read_text(encoding="utf-8")


def _metadata(
    project: Project, artifact: Artifact, statement: Statement, hashes: Mapping[str, str]
) -> Metadata:
    general, backend = project.manifest.general, artifact.target.backend
    return Metadata(
        name=general.name,
        id=artifact.ops_name,
        version=general.version,
        license=general.license,
        backend=backend,
        archs=artifact.archs,
        python_depends=general.python_depends_for(backend),
        kernel_depends=tuple(
            KernelDepend(repo_id=d.repo_id, version=d.version, revision=d.revision)
            for d in general.kernel_depends_for(backend)
        ),
        upstream=general.upstream,
        source=general.source,
        provenance=Provenance(
            builder_version=f"kernforge-{__version__}",
            kernel=statement.origin.git,
            kernforge={**provenance.facts(statement), **_registered(artifact, project)},
        ),
        digest=Digest(algorithm="sha256", files=hashes),
    )


def _registered(artifact: Artifact, project: Project) -> dict[str, list[str]]:
    """Schemas of the operators that a variant registers with torch."""
    target = artifact.target
    if target.variant.framework not in {"torch", "torch-stable-abi"}:
        return {}
    compiled = project.sources.units(target.backend, target.cuda)
    texts = (project.sources.texts[unit.path] for unit in compiled)
    return {"ops": sorted({schema for text in texts for schema in op_schema.schemas_in(text)})}
