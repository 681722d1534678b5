# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import CheckError
from kernforge.source.python_api import Parameter, read_package


def package(init, **files):
    return read_package({"__init__.py": init, **{f"{k}.py": v for k, v in files.items()}})


@pytest.mark.parametrize(
    ("init", "public"),
    [
        ("def f(): ...\ndef _g(): ...\nX = 1\nimport os\nfrom math import pi\n", ["X", "f"]),
        ("__all__ = ['f']\ndef f(): ...\ndef g(): ...\n", ["f"]),
        ("__all__ = ['f'] + ['g']\ndef f(): ...\n", ["f"]),  # only running it would tell
        ("__all__ = ['f']\n__all__ += ('g',)\ndef f(): ...\ndef g(): ...\n", ["f", "g"]),
        ("from .inner import h\nfrom .inner import k as z\n", ["h", "z"]),
        ("from .inner import *\n", ["h", "k"]),
        ("if True:\n    def f(): ...\nelse:\n    f = None\n", ["f"]),
    ],
)
def test_public_is_what_all_lists_or_the_package_defines(init, public):
    found = package(init, inner="def h(): ...\ndef k(): ...\n_hidden = 1\n")
    assert sorted(found) == public
    assert all(entry.kind in {"function", "value"} for entry in found.values())


def test_a_function_is_followed_to_its_module_with_its_signature():
    found = package(
        "from .a import f\n", a="from .b import g as f\n", b="def g(x, /, y=1, *a, z, **k): ...\n"
    )
    assert found["f"].parameters == (
        Parameter(name="x", passed="by position"),
        Parameter(name="y", default="1"),
        Parameter(name="a", passed="rest"),
        Parameter(name="z", passed="by name"),
        Parameter(name="k", passed="other names"),
    )


def test_classes_have_members_and_inherit_those_of_the_package():
    found = package(
        "from .m import Layer\n",
        m="class Base:\n    def both(self, x): ...\n"
        "class Layer(Base):\n    has_backward: bool = True\n    def forward(self, x, y=2): ...\n"
        "    def _own(self): ...\n",
    )
    assert {n: e.parameters and [p.name for p in e.parameters] for n, e in found.items()} == {
        "Layer": None,
        "Layer.both": ["x"],
        "Layer.forward": ["x", "y"],
        "Layer.has_backward": None,
    }


def test_layers_are_public_even_where_all_leaves_them_out():
    found = package("from . import layers\n__all__ = []\n", layers="class ReLU:\n    x = 1\n")
    assert list(found) == ["layers", "layers.ReLU", "layers.ReLU.x"]


def test_a_module_is_public_with_its_names_and_cycles_end():
    found = package("from . import sub\n", sub="from . import sub\ndef f(): ...\nfrom . import x\n")
    assert list(found) == ["sub", "sub.f", "sub.sub", "sub.x"]


def test_nothing_is_run_and_a_syntax_error_names_its_place():
    assert list(package("raise SystemExit\ndef f(): ...\n")) == ["f"]
    with pytest.raises(CheckError, match=r"__init__\.py, line 2"):
        package("x = 1\ndef f(:\n")
