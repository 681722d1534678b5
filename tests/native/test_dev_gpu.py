# SPDX-License-Identifier: Apache-2.0
"""Rounds of ``kernforge dev`` on the GPU: device code that is compiled alone.

    pytest tests/native/test_dev_gpu.py

on a machine with an installed CUDA toolkit of torch's major version; it reads no network there.
"""

import subprocess
import sys

import pytest
from support import jit_homes

from kernforge.builder import from_source
from kernforge.dev import rounds
from kernforge.dev.rounds import RoundEvents
from kernforge.dev.session import DevOptions, Session
from kernforge.errors import ToolchainError
from kernforge.loader import host
from kernforge.system.environment import Environment

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.native,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
# On the GPU; what torch.compile does there takes longer than all else.
PYTEST = ("-k", "cuda and not compile and not large and not 2_to")


def test_edits_are_compiled_alone_and_tested(tmp_path, kept_home, monkeypatch):
    home = jit_homes.make(tmp_path / "home", kept_home, monkeypatch)
    jit_homes.forget(monkeypatch)
    subprocess.run([sys.executable, "-m", "kernforge", "new", "toy"], cwd=tmp_path, check=True)
    root = tmp_path / "toy"
    source = root / "toy.cu"
    text = source.read_text()
    environment = Environment.read()
    why = ToolchainError("nothing is fetched here")
    options = DevOptions(
        root=root,
        place=tmp_path / "place",
        environment=environment,
        local_parts=from_source.local_fallback(host.probe(), environment, why),
        pytest=PYTEST,
        bench=False,
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    session = Session(options, scratch)

    def round_of(old, new):
        assert old in text
        source.write_text(text.replace(old, new))
        return session.run(1, (), rounds.EVERYTHING, RoundEvents(lambda *_: None))

    first = round_of("* scale", "* scale")
    assert first.ok, first.error or first.output or first.failed
    (tested,) = first.tested
    assert tested.counts["passed"] > 10
    wrong = round_of("* scale;", "* scale + 1;")
    assert wrong.exit_code == 6, wrong.error or wrong.output
    right = round_of("(v < 0 ? 0 : v) * scale", "scale * (v < 0 ? 0 : v)")
    assert right.ok, right.error or right.output or right.failed
    swapped = list((home / "store" / "actions").glob("??/*/code.fatbin"))
    assert len(swapped) == 2
    other = round_of(
        "return kernforge::dispatch",
        "if (count == -1) return cudaErrorInvalidValue;\n  return kernforge::dispatch",
    )
    assert other.ok, other.error or other.output or other.failed
    assert list((home / "store" / "actions").glob("??/*/code.fatbin")) == swapped
