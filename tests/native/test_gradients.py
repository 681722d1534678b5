# SPDX-License-Identifier: Apache-2.0
"""The page on gradients: its code runs as it is printed."""

import re
from pathlib import Path

import pytest
from support import jit_homes

pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch]

PAGE = Path(__file__).parents[2] / "docs/how-to/author/add-gradients.md"


def test_the_page_runs(tmp_path, kept_home, monkeypatch):
    home = jit_homes.make(tmp_path / "home", kept_home, monkeypatch)
    jit_homes.forget(monkeypatch)
    jit_homes.lend_results(home, kept_home)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    names = {}
    for block in blocks:
        exec(block, names)  # noqa: S102
    # Torch's headers for autograd alone, and not all: the note of a second attempt is not there.
    assert not list((home / "store").rglob("whole"))
    jit_homes.keep_results(home, kept_home)
    x = names["x"]
    for function in (names["cube"], names["module"].cube_cpp):
        x.grad = None
        function(x).sum().backward()
        assert x.grad.tolist() == pytest.approx((3 * x.detach() ** 2).tolist())
