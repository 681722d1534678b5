# SPDX-License-Identifier: Apache-2.0
"""A script is read without being run: what its literals say is known."""

import pytest

from kernforge.adopt import scripts
from kernforge.adopt.scripts import Computed

HEAD = """
import os, os.path as osp, subprocess
from pathlib import Path
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load as compile_now
import kernforge
NAME = "ops"
FLAGS = ["-O3"] + ["-lineinfo"]
here = osp.dirname(osp.abspath(__file__))
HERE = Path(__file__).resolve().parent
changed = "a"
changed += "b"
loop = loop + 1
with open("k.cu") as stream:
    text = stream.read()
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "k.cu").write_text("source")
    (tmp_path.parent / "secret").write_text("x")

    def read(body):
        path = tmp_path / "script.py"
        path.write_text(HEAD + body)
        return scripts.calls(path)

    return read


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("FLAGS", ["-O3", "-lineinfo"]),
        ("f'{NAME}_ext'", "ops_ext"),
        ("open('k.cu').read()", "source"),
        ("Path('k.cu').read_text()", "source"),
        ("(HERE / 'k.cu').read_text()", "source"),
        ("text", "source"),
        ("{'cxx': FLAGS}", {"cxx": ["-O3", "-lineinfo"]}),
        ("subprocess.check_output(['ls'])", Computed("subprocess.check_output(['ls'])")),
        ("[NAME, made()]", ["ops", Computed("made()")]),
        ("changed", Computed("changed")),
        ("loop", Computed("loop")),
        ("open('../secret').read()", Computed("open('../secret').read()")),
        ("Path('/etc/passwd').read_text()", Computed("Path('/etc/passwd').read_text()")),
        ("10**10**10", Computed("10 ** 10 ** 10")),
    ],
)
def test_values(script, expression, expected):
    (call,) = script(f"compile_now(NAME, {expression})\n")
    assert call.options == {"name": "ops", "sources": expected}


def test_calls_of_the_jit_by_every_name(script, tmp_path):
    found = script(
        "def main():\n    cpp_extension.load_inline('a', '', functions='f')\n"
        "kernforge.load(name='b', sources=[osp.join(here, 'k.cu'), str(HERE / 'k.cu')])\n"
        "json.load('c')\nload('d')\n"
    )
    assert [(call.function, call.options["name"]) for call in found] == [
        ("load_inline", "a"),
        ("load", "b"),
    ]
    assert found[1].options["sources"] == [f"{tmp_path}/k.cu"] * 2
