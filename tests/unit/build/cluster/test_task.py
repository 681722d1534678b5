# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge._version import __version__
from kernforge.build.cluster import task
from kernforge.errors import ToolchainError


def test_the_same_version_with_another_protocol_is_another_kernforge():
    task.require_same(task.IDENTITY, task.IDENTITY)
    older = f"{__version__} (protocol {task.PROTOCOL - 1})"
    for worker in (older, __version__, "absent"):
        with pytest.raises(ToolchainError, match="it has kernforge") as raised:
            task.require_same(task.IDENTITY, worker)
        assert f"install kernforge {task.IDENTITY}" in raised.value.hint
