# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys

import pytest

import kernforge.compat
import kernforge.registry
import kernforge.setuptools
from kernforge import testing


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


@pytest.mark.parametrize(
    "module", [kernforge, kernforge.compat, kernforge.registry, kernforge.setuptools, testing]
)
def test_every_public_name_can_be_imported(module):
    assert sorted(module.__all__) == dir(module)
    for name in module.__all__:
        assert getattr(module, name)
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = module.frobnicate


def test_importing_kernforge_imports_nothing_else():
    assert set(modules_after("import kernforge")) <= {
        "__future__",
        "kernforge",
        "kernforge._lazy",
        "kernforge._version",
    }


def test_get_kernel_is_imported_without_torch():
    roots = {n.partition(".")[0] for n in modules_after("from kernforge import get_kernel")}
    assert not roots & {"torch", "numpy", "pydantic", "requests", "packaging"}


@pytest.mark.parametrize(
    ("code", "module", "extra"),
    [
        ("from kernforge import load_inline", "pydantic", "build"),
        ("from kernforge.testing import op_tests", "pytest", "testing"),
    ],
)
def test_a_name_without_its_package_says_what_to_install(code, module, extra):
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
