# SPDX-License-Identifier: Apache-2.0
"""What a round of ``kernforge dev`` compiles of an edited CUDA source, and on a GPU tests."""

import shutil
import subprocess
import sys

import pytest
from support import jit_homes, projects, scaffolds
from support.jit_homes import device_code, same_code, same_module, ways

from kernforge.binary import cubin
from kernforge.builder import from_source
from kernforge.dev import rounds
from kernforge.dev.rounds import RoundEvents
from kernforge.dev.session import DevOptions, Session
from kernforge.errors import ToolchainError
from kernforge.loader import host
from kernforge.system.environment import Environment
from kernforge.toolchain.local_parts import LocalParts

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch]

BODY = "y[i] = 2 * x[i];"


home = jit_homes.home


@pytest.fixture
def edit(tmp_path, home):
    """Write an edited source and do a round; gives the round and the module that it built."""
    root = projects.write(tmp_path / "times-two-cuda", backends=("cuda",))
    return editor(root, "times_two.cu", tmp_path, home)


def editor(root, name, tmp_path, home):
    source = root / name
    first = source.read_text()
    sessions = iter(range(100))

    def start():
        scratch = tmp_path / f"scratch-{next(sessions)}"
        scratch.mkdir()
        place = scratch / "place"
        options = DevOptions(
            root=root,
            place=place,
            environment=Environment.read(),
            variants=("*-cu130-*",),
            arch=("9.0",),
            test=False,
            bench=False,
        )
        return Session(options, scratch)

    session = start()

    def write_and_build(old=BODY, new=BODY, *, alone=False):
        assert old in first
        source.write_text(first.replace(old, new))
        chosen = start() if alone else session
        if alone:
            shutil.rmtree(home / "store" / "actions")
        one = chosen.run(1, (), rounds.EVERYTHING, RoundEvents(lambda *_: None))
        if not one.ok:
            return one, b""
        (variant,) = one.variants.values()
        (module,) = variant.rglob("*.so")
        return one, module.read_bytes()

    write_and_build.session = session
    return write_and_build


def test_an_edit_of_device_code_is_compiled_alone(home, edit):
    first, before = edit()
    assert first.ok, first.error or first.output
    second, module = edit(BODY, "y[i] = x[i] + x[i] + 1.0f;")
    assert second.ok, second.error or second.output
    assert ways(home) == (1, 1)
    assert [one.use.symbol for one in second.kernels] == [one.use.symbol for one in first.kernels]
    assert module != before
    _, whole = edit(BODY, "y[i] = x[i] + x[i] + 1.0f;", alone=True)
    assert ways(home) == (0, 0)
    assert same_module(module, whole)
    _, again = edit(alone=True)
    assert same_module(before, again)


def test_an_edit_of_host_code_is_compiled_with_all(home, edit):
    edit()
    one, _ = edit("256, 0", "128, 0")
    assert one.ok, one.error or one.output
    assert ways(home) == (0, 0)


def test_the_formula_of_a_new_project_is_compiled_alone(home, tmp_path):
    """Its kernel is in a header that kernforge brings."""
    scaffolds.scaffold("toy", dest=tmp_path / "toy", backends=("cuda",))
    edit = editor(tmp_path / "toy", "toy.cu", tmp_path, home)
    first, before = edit("", "")
    assert first.ok, first.error or first.output
    second, module = edit("* scale;", "* scale + 1;")
    assert second.ok, second.error or second.output
    assert module != before
    assert ways(home) == (1, 1)
    _, whole = edit("* scale;", "* scale + 1;", alone=True)
    # Names of what is unnamed differ.
    one, other = map(device_code, (module, whole))
    assert same_code(cubin.named_like(other, one), one)


# On the GPU; what torch.compile does there takes longer than all else.
PYTEST = ("-k", "cuda and not compile and not large and not 2_to")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_edits_are_compiled_alone_and_tested_on_a_gpu(tmp_path, home, monkeypatch):
    """Where a CUDA toolkit of torch's major version is installed; it reads no network."""
    subprocess.run([sys.executable, "-m", "kernforge", "new", "toy"], cwd=tmp_path, check=True)
    root = tmp_path / "toy"
    source = root / "toy.cu"
    text = source.read_text()
    environment = Environment.read()
    parts = from_source.local_fallback(host.probe(), environment, ToolchainError("no index here"))
    monkeypatch.setattr(LocalParts, "named", lambda *_: parts)
    options = DevOptions(
        root=root,
        place=tmp_path / "place",
        environment=environment,
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
