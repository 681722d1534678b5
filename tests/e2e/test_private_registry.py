# SPDX-License-Identifier: Apache-2.0
"""The page about private registries, followed with servers of this machine."""

from pathlib import Path

import pytest
from e2e.walkthrough import Walk
from support.served import served
from support.variants import contents

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("kernels")
pytest.importorskip("granian")

PAGE = Path(__file__).parents[2] / "docs/how-to/platform/private-registry.md"
RELU = {"__init__.py": "def relu(x):\n    return x.clamp(min=0)\n"}


@pytest.fixture
def team(tmp_path, usual_hub, write_variant):
    """A folder with a built project, and a hub with a kernel."""
    theirs = write_variant(tmp_path / "theirs", variant="torch-universal", name="relu", files=RELU)
    usual_hub.add("kernels-community/relu", "v1", contents(theirs))
    top = tmp_path / "work"
    mine = {path: text.replace("relu", "my_kernel") for path, text in RELU.items()}
    variant = {"variant": "torch-universal", "name": "my-kernel", "files": mine}
    write_variant(top / "my-kernel/build", **variant)
    (top / "my-kernel/build.toml").write_text(
        '[general]\nname = "my-kernel"\nversion = 1\nedition = 5\nlicense = "Apache-2.0"\n'
        'backends = ["cpu"]\n[torch-noarch]\n'
    )
    return top


def test_every_command_of_the_page_works(team, tmp_path, bucket, web_server):
    shown = tmp_path / "registry"
    shown.mkdir()
    with served(shown, tmp_path / "log", "--trusted", "acme") as server:
        text = PAGE.read_text()
        for name, here in {
            "/srv/kernels": str(shown),
            "https://kernels.example.com": web_server(shown).url,
            "http://kernels.example.com:8000": server.url,
            "s3://acme-kernels/registry": bucket,
        }.items():
            assert name in text
            text = text.replace(name, here)
        page = tmp_path / PAGE.name
        page.write_text(text)
        Walk(page, team, tmp_path / "home").follow(gpu=False)
