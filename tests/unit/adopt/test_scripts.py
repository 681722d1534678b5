# SPDX-License-Identifier: Apache-2.0
"""Of a script, only what the arguments of load and load_inline need is run, in the sandbox."""

import pytest

from kernforge.adopt import program
from kernforge.adopt.describe import Script

HEAD = """
import json, os, os.path as osp, subprocess
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
def read(name):
    return (HERE / name).read_text()
raise SystemExit("the rest of the script is not run")
"""
VALUES = {
    "FLAGS": ["-O3", "-lineinfo"],
    "[NAME, made()]": ["ops"],
    "f'{NAME}_ext'": "ops_ext",
    "open('k.cu').read()": "source",
    "Path('k.cu').read_text()": "source",
    "read('k.cu')": "source",
    "text": "source",
    "changed": None,
    "loop": None,
    "open('../secret').read()": None,
    "open('/etc/passwd').read()": None,
}


@pytest.fixture
def described(tmp_path):
    """A function that describes a script as adopt does."""
    (tmp_path / "old").mkdir()
    (tmp_path / "place").mkdir()
    (tmp_path / "old/k.cu").write_text("source")
    (tmp_path / "secret").write_text("x")

    def describe(body):
        path = tmp_path / "old/script.py"
        path.write_text(HEAD + body)
        return program._described(path, tmp_path / "place")[0]

    return describe


def test_what_arguments_need_is_evaluated_and_the_rest_is_a_remark(described):
    calls = [f"compile_now({f'm{n}'!r}, ['k.cu'], {text})" for n, text in enumerate(VALUES)]
    found = described("\n".join(calls))
    flags = [each["cflags"] for each in found["extensions"]]
    listed = [v if isinstance(v, list) else [] if v is None else [v] for v in VALUES.values()]
    assert flags == listed
    computed = {
        text.partition(": ")[2].partition(" is computed")[0] for _, text in found["remarks"]
    }
    assert {each.replace('"', "'") for each in computed} == {
        "made()",
        *(text for text, value in VALUES.items() if value is None),
    }


def test_calls_of_the_jit_by_every_name(described, tmp_path):
    found = described(
        "def main():\n    cpp_extension.load_inline('a', 'int f();', functions='f')\n"
        "kernforge.load(name='b', sources=[osp.join(here, 'k.cu'), str(HERE / 'k.cu')])\n"
        "json.load('c')\nload('d')\n"
    )
    first, second = found["extensions"]
    assert (first["name"], first["sources"]) == ("a", ["a.cpp"])
    assert "int f();" in found["texts"]["a.cpp"]
    assert (second["name"], second["sources"]) == ("b", [f"{tmp_path}/old/k.cu"] * 2)


def test_without_a_sandbox_only_literals_count(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(f"{HEAD}compile_now(NAME, ['k.cu', read('k.cu')], FLAGS)\n")
    found = Script(path, sandboxed=False).describe()
    (extension,) = found["extensions"]
    assert (extension["name"], extension["sources"]) == ("ops", ["k.cu"])
    assert [text.partition(":")[0] for _, text in found["remarks"]] == ["sources", "extra_cflags"]


def test_a_link_out_of_the_project_is_not_read(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project/a.h").symlink_to("../secret")
    (tmp_path / "secret").write_text("x")
    assert program.text_in(tmp_path / "project", "a.h") is None
    assert program.text_in(tmp_path / "project", "../secret") is None
