# SPDX-License-Identifier: Apache-2.0
"""Our kernels and what `kernforge new` writes bring a card."""

from pathlib import Path

import pytest
from support.scaffolds import scaffold

KERNELS = sorted(p.parent for p in (Path(__file__).parents[2] / "kernels").glob("*/build.toml"))


@pytest.fixture(params=[*KERNELS, None], ids=lambda path: path.name if path else "new")
def project(request, tmp_path):
    if request.param is None:
        scaffold("my-relu", dest=tmp_path / "my-relu")
        return tmp_path / "my-relu"
    return request.param


def test_a_card_has_a_head_that_the_hub_reads(project):
    text = (project / "CARD.md").read_text()
    _, head, body = text.split("---\n", 2)
    assert "license: " in head
    assert "  - kernels\n" in head
    assert f"\n# {project.name}\n" in body
    named = (f'/{project.name}", version=', '("{{ repo_id }}", version={{version}})')
    assert any(name in body for name in named), "how to get it, which publishing may fill in"
