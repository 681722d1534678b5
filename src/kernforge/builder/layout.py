# SPDX-License-Identifier: Apache-2.0
"""Lay the directories of variants out as the hub has them, with a statement of how each was made.

Package, extension, ``_ops.py``, ``provenance.intoto.json``, ``metadata.json``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from kernforge._version import __version__
from kernforge.artifact.integrity import digest_tree, hash_bytes
from kernforge.artifact.metadata import FILE, Digest, KernelDepend, Metadata, Provenance
from kernforge.artifact.variant import Variant
from kernforge.builder import provenance
from kernforge.builder.execute import results
from kernforge.builder.execute.results import STORE_KIND
from kernforge.builder.plan.graph import Artifact, Plan
from kernforge.builder.provenance import Origin, Statement
from kernforge.builder.workspace import Workspace
from kernforge.errors import IntegrityError
from kernforge.project.api import Project
from kernforge.source import op_schema
from kernforge.system import files


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What a variant's directory will hold.

    Attributes:
        files: base64 SHA-256 of each file that the digest covers, by path.
    """

    statement: str
    metadata: Metadata
    files: Mapping[str, str]


def lay_out_variants(
    plan: Plan, workspace: Workspace, origin: Origin, out: Path
) -> dict[str, Path]:
    """Lay out each variant of which the store has all results; one that is there already stays.

    Args:
        out: directory that will hold a directory for each variant; an old one of the same name
            is replaced as a whole.

    Returns:
        The directory of each, by name.

    Raises:
        IntegrityError: an extension is not what was made, or a file changed meanwhile.
        StorageError: the disk is full or read-only.
    """
    project, store = workspace.project, workspace.store
    modules = {action.key: action.outputs[0] for action in plan.actions}
    variants = {}
    for artifact in plan.artifacts:
        if artifact.extension and not store.has(STORE_KIND, artifact.extension):
            continue
        variants[artifact.target.name] = final = out / artifact.target.name
        module = modules.get(artifact.extension or "", "")
        actions = results.records(plan, artifact, store)
        statement = provenance.state(artifact.target.name, origin, actions)
        layout = _layout(project, artifact, module, statement)
        if _is_there(layout, final):
            continue
        with files.staging(out) as staged:
            tree = staged / final.name
            files.make_dir(tree)
            _copy_package(artifact, project, tree)
            if artifact.extension:
                results.copy_output(store, artifact.extension, module, tree / module)
            files.write_new(tree / provenance.FILE, layout.statement)
            if digest_tree(tree).files != layout.files:
                raise IntegrityError(
                    f"a file of {artifact.target.name} changed while the build ran",
                    hint="build again",
                )
            files.write_new(tree / FILE, layout.metadata.to_json())
            files.replace_tree(tree, final)
    return variants


def _layout(project: Project, artifact: Artifact, module: str, statement: Statement) -> _Layout:
    """What a variant will hold, of which every hash is known.

    Args:
        module: file of the extension; empty without machine code.
    """
    digests = project.sources.digests
    hashes = {path: _base64(digests[name]) for path, name in artifact.package.items()}
    hashes["_ops.py"] = _hash(ops_module(artifact.ops_name, artifact.target.variant))
    if module:
        hashes[module] = _base64(statement.actions[-1].outputs[module])
    text = provenance.write(statement, hashes)
    hashes[provenance.FILE] = _hash(text)
    ordered = dict(sorted(hashes.items()))
    return _Layout(
        statement=text,
        metadata=_metadata(project, artifact, statement, ordered),
        files=ordered,
    )


def _is_there(layout: _Layout, path: Path) -> bool:
    """Whether a directory holds a variant already, byte by byte."""
    if path.is_symlink() or not (path / FILE).is_file():
        return False
    if (path / FILE).read_bytes() != layout.metadata.to_json():
        return False
    try:
        return digest_tree(path).files == layout.files
    except IntegrityError:
        return False


def _hash(text: str) -> str:
    return hash_bytes(text.encode(), "sha256")


def _base64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def _copy_package(artifact: Artifact, project: Project, tree: Path) -> None:
    """Write the Python package of a variant, without its extension, into an empty directory."""
    for path, source in artifact.package.items():
        if path != "_ops.py":
            files.copy_file(project.files[source], tree / path)
    files.write_new(tree / "_ops.py", ops_module(artifact.ops_name, artifact.target.variant))


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
    """The operators that the sources of a variant register with torch, for later comparison."""
    target = artifact.target
    if target.variant.framework not in {"torch", "torch-stable-abi"}:
        return {}
    compiled = project.sources.units(target.backend, target.cuda)
    texts = (project.sources.texts[unit.path] for unit in compiled)
    return {"ops": sorted({schema for text in texts for schema in op_schema.schemas_in(text)})}
