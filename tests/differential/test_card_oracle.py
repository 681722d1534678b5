# SPDX-License-Identifier: Apache-2.0
"""Cards are filled as kernel-builder fills them: by minijinja, with ``trim_blocks``."""

from pathlib import Path

import minijinja
import pytest

from kernforge.project.card import CardTemplate

DATA = Path(__file__).parents[1] / "data" / "cards"
REAL = DATA / "kernels_community_relu.md"
"""The card of kernels-community/relu, and of 44 more kernels there (Apache-2.0)."""


@pytest.mark.parametrize("full", [True, False])
def test_a_card_of_the_community_is_filled_alike(full):
    values = {
        "name": "relu",
        "version": 2,
        "license": "apache-2.0" if full else "",
        "functions": ["relu", "relu_"] if full else [],
        "layers": ["ReLU"] if full else [],
        "has_benchmark": full,
        "upstream": "https://example.org/relu" if full else None,
        "source": None,
    }
    text = REAL.read_text()
    theirs = minijinja.Environment()
    theirs.trim_blocks = True
    expected = theirs.render_str(text, **values, repo_id="kernels-community/relu")
    ours = CardTemplate(text=text, authored=True, values=values).fill("kernels-community/relu")
    assert ours == expected
    assert ('get_kernel("kernels-community/relu", version=2)' in ours) == full
