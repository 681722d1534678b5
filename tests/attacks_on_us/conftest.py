# SPDX-License-Identifier: Apache-2.0
"""What the attacks run in: every sandbox that there is, and none."""

import os
import shutil

import pytest
from support.attacks import SECRET

from kernforge.build.execute import sandbox
from kernforge.build.execute.action import ActionContext
from kernforge.build.execute.sandbox import Sandbox
from kernforge.errors import ToolchainError
from kernforge.store.local import Store
from kernforge.system import files, process


def _sandbox(kind: str) -> Sandbox:
    if kind == "off":
        return sandbox.OFF
    if kind == "bubblewrap":
        program = os.environ.get("KERNFORGE_TEST_BWRAP") or shutil.which("bwrap")
        if not program:
            pytest.skip("bubblewrap is not installed")
        return Sandbox(kind="bubblewrap", bwrap=program, wanted="required")
    try:
        return sandbox.probe("required", "/usr/bin/env", process.run, "")
    except ToolchainError as error:
        pytest.skip(error.message)


@pytest.fixture(params=["namespaces", "bubblewrap"])
def jail(request):
    """Each kind of sandbox."""
    return _sandbox(request.param)


@pytest.fixture(params=["namespaces", "bubblewrap", "off"])
def anywhere(request):
    """Each kind of sandbox, and none."""
    return _sandbox(request.param)


@pytest.fixture
def context(anywhere, tmp_path):
    """What actions are run with, in each kind of sandbox and without."""
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
