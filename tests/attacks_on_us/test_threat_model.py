# SPDX-License-Identifier: Apache-2.0
"""The threat model names the test of each promise, and each attack stands in it."""

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = (ROOT / "docs" / "explanation" / "threat-model.md").read_text()


def test_each_promise_names_a_test_that_exists():
    named = set(re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)`", PAGE))
    assert named
    missing = {n for n in named if not (HERE / n).is_file() and not (ROOT / n).is_file()}
    assert not missing


def test_each_attack_is_in_the_threat_model():
    attacks = {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert not {name for name in attacks if f"`{name}`" not in PAGE}
