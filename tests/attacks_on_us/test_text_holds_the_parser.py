# SPDX-License-Identifier: Apache-2.0
"""Python for which its parser needs minutes: no server waits for it, and no command."""

import threading

import pytest
from support.commands import call
from support.served import served

from kernforge.errors import CheckError
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system.digest import sha256

REPO = "acme/toy"
TEXT = f'__all__ = ["f"]\nx = f"{"{a}" * 150_000}"\n'


@pytest.fixture
def variant(tmp_path, write_variant):
    files = {"__init__.py": "from .slow import *\n", "slow.py": TEXT, "_ops.py": ""}
    return write_variant(tmp_path / "build", variant="torch-universal", files=files)


def test_server_answers_others_meanwhile(variant, tmp_path):
    registry, path = DirectoryRegistry(tmp_path / "registry"), variant.relative_to(tmp_path)
    with registry.writing(REPO):
        tree = {}
        for file in variant.iterdir():
            data = file.read_bytes()
            tree[f"{path}/{file.name}"] = digest = sha256(data)
            registry.add_blob(REPO, digest, data)
        registry.set_ref(REPO, "v1", registry.add_snapshot(REPO, tree))
    with served(registry.root, tmp_path / "log") as server:
        pages = []
        asked = threading.Thread(target=lambda: pages.append(server.ask(f"/kernels/{REPO}")))
        asked.start()
        answers = 0
        while asked.is_alive():
            answers += server.ask("/healthz").status == 200
        assert "cannot be read within" in pages[0].body.decode()
        assert answers > 20


def test_commands_refuse_it(variant, tmp_path, capsys):
    assert call("check", variant) == 6
    assert "the Python of the package cannot be read within" in capsys.readouterr().out
    with pytest.raises(CheckError, match="cannot be read within"):
        publish(variant, DirectoryRegistry(tmp_path / "registry"), REPO)
