# SPDX-License-Identifier: Apache-2.0
"""``import kernels`` answered by kernforge: in a process, for a command, and from a wheel."""

import json
import sys
import zipfile

import pytest
from packaging.requirements import Requirement
from support.client_programs import INSTALL, SRC, python, run

from kernforge.compat import names, shim
from kernforge.errors import RequestError
from kernforge.system.environment import Environment

FACTS = """
import importlib.metadata, importlib.util, json, sys
import kernels, kernels.layer
from kernels import LayerRepository, get_kernel
print(json.dumps({
    "spec": importlib.util.find_spec("kernels") is not None,
    "version": [kernels.__version__, importlib.metadata.version("kernels")],
    "home": get_kernel.__module__,
    "torch": "torch" in sys.modules,
    "all": sorted(kernels.__all__),
}))
"""


def facts(text, version=names.VERSION):
    found = json.loads(text)
    assert found["spec"]
    assert found["version"] == [version, version]
    assert found["home"] == "kernforge.compat.loading"
    assert not found["torch"]
    assert found["all"] == sorted(["__version__", *names.TOP])


def test_a_process_that_installs_it(tmp_path):
    facts(python(INSTALL + FACTS, HOME=str(tmp_path)))
    claimed = python(INSTALL + FACTS, HOME=str(tmp_path), KERNFORGE_KERNELS_VERSION="0.18.2")
    facts(claimed, "0.18.2")


@pytest.mark.parametrize("option", ["--as-kernels", "--as-kernels=0.18.2"])
def test_a_command_and_what_it_starts(tmp_path, option):
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FACTS!r}], check=True)"
    done = run(
        *(sys.executable, "-m", "kernforge", "run", option, "--", sys.executable, "-c", inner),
        HOME=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    facts(done.stdout, "0.18.2" if "=" in option else names.VERSION)


def test_the_exit_code_is_that_of_the_command(tmp_path):
    program = "raise SystemExit(7)"
    done = run(
        *(sys.executable, "-m", "kernforge", "run", "--as-kernels", "--"),
        *(sys.executable, "-c", program),
        HOME=str(tmp_path),
    )
    assert done.returncode == 7


def test_a_wheel_satisfies_requirements(tmp_path):
    wheel = shim.write_wheel(tmp_path, "0.18.2")
    assert wheel.name == "kernels-0.18.2-py3-none-any.whl"
    assert wheel.read_bytes() == shim.write_wheel(tmp_path / "again", "0.18.2").read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read("kernels-0.18.2.dist-info/RECORD").decode()
        assert {line.partition(",")[0] for line in record.split()} == set(archive.namelist())
        archive.extractall(tmp_path / "site")
    path = f"{tmp_path / 'site'}:{SRC}"
    facts(python(FACTS, HOME=str(tmp_path), PYTHONPATH=path), "0.18.2")
    assert Requirement("kernels>=0.18.2,<0.19").specifier.contains("0.18.2")


def test_what_is_no_version_is_refused(tmp_path):
    with pytest.raises(RequestError, match="is not a version of kernels"):
        shim.write_wheel(tmp_path, "newest")
    with pytest.raises(RequestError, match="is not a version of kernels"):
        shim.command_environment(Environment({"KERNFORGE_HOME": str(tmp_path)}), "../x")


def test_the_client_itself_is_not_replaced_after_its_import(tmp_path):
    (tmp_path / "kernels.py").write_text("__version__ = '0.17.2'\n")
    program = (
        "import kernels\nfrom kernforge import compat\n"
        "try:\n    compat.install()\nexcept Exception as error:\n    print(type(error).__name__)\n"
    )
    assert python(program, PYTHONPATH=f"{SRC}:{tmp_path}").strip() == "UsageError"


def test_it_can_be_undone():
    program = INSTALL + (
        "import importlib.util, sys\nimport kernels.layer\ncompat.uninstall()\n"
        "print([name for name in sys.modules if name.startswith('kernels')])\n"
    )
    assert python(program).strip() == "[]"


def test_every_name_of_every_module_exists():
    program = INSTALL + (
        "import importlib\nfrom kernforge.compat import names\n"
        "for module in names.MODULES:\n"
        "    loaded = importlib.import_module(f'kernels.{module}'.rstrip('.'))\n"
        "    for name in names.homes(module):\n        getattr(loaded, name)\n"
    )
    python(program)


def test_logging_follows_the_clients_loggers():
    program = INSTALL + (
        "import io, logging\nout = io.StringIO()\n"
        "logging.getLogger('kernels').addHandler(logging.StreamHandler(out))\n"
        "logging.getLogger('kernforge').warning('heard')\n"
        "logging.getLogger('kernels').setLevel(logging.ERROR)\n"
        "logging.getLogger('kernforge.fitness').warning('unheard')\n"
        "print(out.getvalue().split())\n"
    )
    assert python(program).strip() == "['heard']"
