# SPDX-License-Identifier: Apache-2.0
"""What the attacks run in: the sandbox, and none."""

import pytest
from support.attacks import SECRET

from kernforge.builder import sandbox
from kernforge.builder.action import ActionContext
from kernforge.builder.sandbox import Sandbox
from kernforge.errors import ToolchainError
from kernforge.store.local import Store
from kernforge.system import files, process


def _sandbox(kind: str) -> Sandbox:
    if kind == "off":
        return sandbox.OFF
    try:
        return sandbox.probe("required", "/usr/bin/env", process.run)
    except ToolchainError as error:
        pytest.skip(error.message)


@pytest.fixture
def jail():
    """The sandbox."""
    return _sandbox("namespaces")


@pytest.fixture(params=["namespaces", "off"])
def anywhere(request):
    """The sandbox, and none."""
    return _sandbox(request.param)


@pytest.fixture
def context(anywhere, tmp_path):
    """What actions are run with, in the sandbox and without."""
    store = Store(tmp_path / "store")
    context = ActionContext(store=store, trees={}, runner=process.run, jobs=2, sandbox=anywhere)
    yield context
    files.remove_tree(context.work)  # pytest could not, of what some attacks leave


@pytest.fixture
def secret(tmp_path):
    """A file that no project and no action may read."""
    path = tmp_path / "home" / ".ssh" / "id_ed25519"
    path.parent.mkdir(parents=True)
    path.write_text(SECRET)
    return path
