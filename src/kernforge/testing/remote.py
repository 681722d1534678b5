# SPDX-License-Identifier: Apache-2.0
"""A project's tests on a worker of a Dask scheduler: what is sent, and what the worker does.

What it sends back is what a run here would give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.build.cluster import network, task
from kernforge.build.cluster.task import IDENTITY
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.testing import project_tests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kernforge.testing.project_tests import Tested

_LEFT_OUT = frozenset({"build", "__pycache__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TestTask:
    """A project and a variant to test.

    Attributes:
        kernforge: identity of the sender.
        project: content of the project's files, by path in it.
        name: the variant's.
        variant: content of the variant's files, by path in it.
        repo_id: where the project is published, if anywhere.
    """

    kernforge: str
    project: Mapping[str, bytes]
    name: str
    variant: Mapping[str, bytes]
    arguments: tuple[str, ...]
    repo_id: str | None


def pack(
    project: Path, variant: Path, arguments: Sequence[str], repo_id: str | None = None
) -> TestTask:
    """Read what a worker needs: the project without its builds and hidden files."""
    return TestTask(
        kernforge=IDENTITY,
        project=_contents(project),
        name=variant.name,
        variant=_contents(variant),
        arguments=tuple(arguments),
        repo_id=repo_id,
    )


def _contents(root: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(part in _LEFT_OUT or part.startswith(".") for part in parts)
        if path.is_file() and not hidden:
            found["/".join(parts)] = path.read_bytes()
    return found


def unpack_and_test(sent: TestTask) -> Tested:
    """Test, on the worker where this is called, what another machine sent.

    Raises:
        ToolchainError: that machine has another kernforge.
        UsageError: see ``project_tests.run_variant``.
    """
    task.require_same(sent.kernforge, IDENTITY)
    environment = Environment.read()
    network.require_private_worker(environment)
    worker = network.this_worker()
    with files.staging(environment.home / "tests") as scratch:
        for folder, contents in (("project", sent.project), (sent.name, sent.variant)):
            for path, data in contents.items():
                files.write_new(scratch / folder / path, data)
        return project_tests.run_variant(
            scratch / "project",
            scratch / sent.name,
            sent.arguments,
            environment=environment,
            repo_id=sent.repo_id,
            where=str(worker.address) if worker else "here",
        )
