# SPDX-License-Identifier: Apache-2.0
import dataclasses
import enum
import inspect
import json
import re
import subprocess
import sys

import pytest

import kernforge
import kernforge.errors
import kernforge.registry
import kernforge.testing


def modules_after(code):
    """The top-level modules that are new after some code in a fresh process."""
    program = (
        "import sys, json; before = set(sys.modules)\n"
        f"{code}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_every_public_name_can_be_imported():
    assert sorted(kernforge.__all__) == dir(kernforge)
    for name in kernforge.__all__:
        assert getattr(kernforge, name)
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = kernforge.frobnicate


def test_importing_kernforge_imports_nothing_else():
    assert set(modules_after("import kernforge")) <= {
        "__future__",
        "kernforge",
        "kernforge._lazy",
        "kernforge._version",
    }


def test_the_loader_imports_no_torch_until_a_kernel_is_asked_for():
    roots = {n.partition(".")[0] for n in modules_after("from kernforge import get_kernel")}
    assert not roots & {"torch", "numpy", "pydantic", "requests", "packaging"}


@pytest.mark.parametrize(
    ("code", "module", "extra"),
    [
        ("from kernforge import load_inline", "pydantic", "build"),
        ("from kernforge.testing import op_tests", "pytest", "testing"),
    ],
)
def test_a_name_whose_packages_are_not_installed_says_what_to_install(code, module, extra):
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from kernforge.errors import MissingPackageError\n"
        f"try:\n  {code}\nexcept MissingPackageError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    what, hint = done.stdout.splitlines()
    assert what.endswith(f"needs {module}, which is not installed")
    assert hint == f"pip install 'kernforge[{extra}]'"


def _public():
    for module in (kernforge, kernforge.errors, kernforge.registry, kernforge.testing):
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            if callable(value) and getattr(value, "__module__", "").startswith("kernforge"):
                yield pytest.param(value, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("value", list(_public()))
def test_a_public_list_of_parameters_is_whole(value):
    text = inspect.getdoc(value) or ""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?)+)", text, re.MULTILINE)
    if section is None or (inspect.isclass(value) and issubclass(value, enum.Enum)):
        return
    if section[0].startswith("Attributes"):
        names = (
            [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        )
    else:
        names = [n.lstrip("*") for n in inspect.signature(value).parameters]
    listed = re.findall(r"^    \*{0,2}(\w+): ", section[1], re.MULTILINE)
    assert not {n for n in names if not n.startswith("_")} - set(listed)
