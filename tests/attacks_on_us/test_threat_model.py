# SPDX-License-Identifier: Apache-2.0
"""The threat model links each promise to its test, and each attack stands in it."""

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
TEXT = PAGE.read_text()
ATTACKS = {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
_LINK = re.compile(r"\[`(test_\w+\.py)`\]\(([^)]+)\)")


def promises():
    """The rows of the table of promises."""
    table = TEXT.partition("| who | holds |")[2].partition("\n\n")[0]
    return [line for line in table.splitlines()[2:] if line.startswith("|")]


def test_each_promise_links_to_a_test_that_exists():
    assert len(promises()) > 15
    without = [row for row in promises() if not _LINK.search(row) and "**a publisher**" not in row]
    assert not without, "only what is not tested here, as a publisher who is trusted"
    for name, target in _LINK.findall(TEXT):
        assert (PAGE.parent / target).is_file(), target
        assert target.endswith(f"/{name}")


def test_each_attack_is_in_the_threat_model():
    assert not ATTACKS - {name for name, _ in _LINK.findall(TEXT)}
