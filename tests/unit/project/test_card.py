# SPDX-License-Identifier: Apache-2.0
"""The card of a project: an author's template, an author's text, or ours."""

import pytest

from kernforge.errors import SourceError
from kernforge.project import api, card

MANIFEST = """\
[general]
name = "two-layers"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cpu"]
upstream = "https://example.org/two"

[torch-noarch]
"""
PACKAGE = """\
from . import layers
from .ops import second, first

__all__ = ["layers", "second", "first"]
"""


@pytest.fixture
def project(tmp_path):
    """A function that reads a project with this card; further files by their paths."""

    def make(text=None, **sources):
        files = {
            "build.toml": MANIFEST,
            "torch-ext/two_layers/__init__.py": PACKAGE,
            "torch-ext/two_layers/ops.py": "def first(x): ...\ndef second(x): ...\n",
            "torch-ext/two_layers/layers.py": "class Norm: ...\nclass _Base: ...\n",
            **({} if text is None else {"CARD.md": text}),
            **sources,
        }
        for path, content in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content)
        return card.read(api.read_project(tmp_path))

    return make


def test_a_template_knows_the_kernel(project):
    template = project(
        "{{ name }} {{ repo_id }} {{ version }} {{ license }} {{ upstream }} {{ source }}|"
        "{{ functions | join(',') }}|{{ layers | join(',') }}|{{ has_benchmark }}|"
        "{{ variants | join(',') }}"
    )
    assert template.authored
    assert template.fill("o/n", ["torch-cuda", "torch-cpu"]) == (
        "two-layers o/n 3 apache-2.0 https://example.org/two None|"
        "second,first|Norm|False|torch-cpu,torch-cuda"
    )


def test_a_card_that_is_no_template_stays_as_it_is(project):
    assert project("# Two\n\nText { } %}\n").fill("o/n") == "# Two\n\nText { } %}\n"


def test_a_project_without_a_card_gets_ours(project):
    template = project(**{"benchmarks/benchmark_two.py": ""})
    text = template.fill("o/n", ["torch-cpu"])
    assert not template.authored
    assert card.GENERATED in text
    for line in (
        "license: apache-2.0",
        'kernel = kernforge.get_kernel("o/n", version=3)',
        "kernel.second(...)",
        "- `first`",
        "- `Norm`",
        "- `torch-cpu`",
        "`kernforge bench o/n@v3` measures it on your machine.",
        "- The original code: https://example.org/two",
    ):
        assert line in text.splitlines()
    assert "The project that" not in text


def test_without_a_list_of_names_public_functions_count(project):
    plain = {"torch-ext/two_layers/__init__.py": "from .ops import first\ndef _own(): ...\n"}
    assert project("{{ functions }}", **plain).fill("o/n") == "['first']"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\n{% if %}", "CARD.md, line 2: Expected an expression"),
        ("a\n\n{{ functions[0 }}", "CARD.md, line 3: "),
        ("a\nb\n{{ nothing.at.all }}", "CARD.md, line 3: 'nothing' is undefined"),
        ("{{ 1 / 0 }}", "CARD.md, line 1: division by zero"),
        ("{% include '/etc/passwd' %}", "CARD.md, line 1: no loader"),
        ("{{ range(10 ** 9) }}", "CARD.md, line 1: Range too big"),
        ("a\n{{ repo_id * 2 ** 61 }}", "CARD.md, line 2: it needs more memory than there is"),
        ("{{ name.__class__.__mro__ }}", "CARD.md, line 1: access to attribute '__class__'"),
    ],
)
def test_a_mistake_has_its_line(project, text, said):
    with pytest.raises(SourceError) as raised:
        project(text).fill("o/n")
    assert str(raised.value).startswith(said)
