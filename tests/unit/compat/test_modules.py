# SPDX-License-Identifier: Apache-2.0
"""``import kernels`` answered by kernforge: in a process, for a command, and from a wheel."""

import argparse
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.kernels import lock

from kernforge import errors
from kernforge.artifact.metadata import CLIENT_VERSION
from kernforge.cli import client
from kernforge.cli.parser import read
from kernforge.compat import shim
from kernforge.errors import RequestError
from kernforge.publish.api import publish
from kernforge.system.environment import Environment

SRC = Path(__file__).parents[3] / "src"
INSTALL = "from kernforge import compat\ncompat.install()\n"


def run(*argv, **variables):
    """Run a program with a few variables only."""
    environment = {"PYTHONPATH": str(SRC), "PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def python(program, **variables):
    """What a Python program prints, which must succeed."""
    done = run(sys.executable, "-c", program, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


FACTS = """
import importlib.metadata, importlib.util, json, sys
import kernels, kernels.layer
from kernels import LayerRepository, get_kernel
print(json.dumps({
    "spec": importlib.util.find_spec("kernels") is not None,
    "version": [kernels.__version__, importlib.metadata.version("kernels")],
    "home": get_kernel.__module__,
    "torch": "torch" in sys.modules,
}))
"""


def facts(text, version=CLIENT_VERSION):
    found = json.loads(text)
    assert found["spec"]
    assert found["version"] == [version, version]
    assert found["home"].startswith("kernforge.")
    assert not found["torch"]


def test_install_answers_imports_of_the_process(tmp_path):
    facts(python(INSTALL + FACTS, HOME=str(tmp_path)))
    claimed = python(INSTALL + FACTS, HOME=str(tmp_path), KERNFORGE_KERNELS_VERSION="0.18.3")
    facts(claimed, "0.18.3")


@pytest.mark.parametrize("option", ["--as-kernels", "--as-kernels=0.18.3"])
def test_run_answers_imports_of_a_command_and_its_children(tmp_path, option):
    def run_as_kernels(program):
        argv = (sys.executable, "-m", "kernforge", "run", option, "--", sys.executable, "-c")
        return run(*argv, program, HOME=str(tmp_path))

    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FACTS!r}], check=True)"
    done = run_as_kernels(inner)
    assert done.returncode == 0, done.stderr
    facts(done.stdout, "0.18.3" if "=" in option else CLIENT_VERSION)
    assert run_as_kernels("raise SystemExit(7)").returncode == 7


@pytest.mark.parametrize("shared", ["", "as-kernels", "as-kernels/0.18.2/kernels"])
def test_a_world_writable_directory_is_refused(tmp_path, shared):
    argv = (sys.executable, "-m", "kernforge", "run", "--as-kernels", "--", "true")
    variables = {"HOME": str(tmp_path), "KERNFORGE_HOME": str(tmp_path / "home")}
    assert run(*argv, **variables).returncode == 0
    place = tmp_path / "home" / shared
    place.chmod(0o777)
    done = run(*argv, **variables)
    assert done.returncode != 0
    assert f"chmod go-w {place}" in done.stderr


def test_a_wheel_satisfies_requirements(tmp_path):
    wheel = shim.write_wheel(tmp_path, "0.18.3", tmp_path)
    assert wheel.name == "kernels-0.18.3-py3-none-any.whl"
    assert (
        wheel.read_bytes() == shim.write_wheel(tmp_path / "again", "0.18.3", tmp_path).read_bytes()
    )
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read("kernels-0.18.3.dist-info/RECORD").decode()
        assert {line.partition(",")[0] for line in record.split()} == set(archive.namelist())
        archive.extractall(tmp_path / "site")
    path = f"{tmp_path / 'site'}:{SRC}"
    facts(python(FACTS, HOME=str(tmp_path), PYTHONPATH=path), "0.18.3")
    assert Requirement("kernels>=0.18.3,<0.19").specifier.contains("0.18.3")


def test_an_invalid_version_is_refused(tmp_path):
    with pytest.raises(RequestError, match="is not a version of kernels"):
        shim.write_wheel(tmp_path, "newest", tmp_path)
    with pytest.raises(RequestError, match="is not a version of kernels"):
        shim.command_environment(Environment({"KERNFORGE_HOME": str(tmp_path)}), "../x")


def test_an_imported_client_is_not_replaced(tmp_path):
    (tmp_path / "kernels.py").write_text("__version__ = '0.18.2'\n")
    program = (
        "import kernels\nfrom kernforge import compat\n"
        "try:\n    compat.install()\nexcept Exception as error:\n    print(type(error).__name__)\n"
    )
    assert python(program, PYTHONPATH=f"{SRC}:{tmp_path}").strip() == "UsageError"


# The public names of the installed client, which runs in a process of its own, and the parameters
# of its functions. ``kernels.layer.mode`` is imported by transformers.
PUBLIC = """
import importlib, inspect, json
found = {}
for name in ("kernels", "kernels.layer", "kernels.layer.mode", "kernels.benchmark"):
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [n for n in ("Mode", "Benchmark") if hasattr(module, n)])
    for each in names:
        value = getattr(module, each)
        words = list(inspect.signature(value).parameters) if inspect.isfunction(value) else []
        found[f"{name}.{each}"] = words
print(json.dumps(found))
"""


@pytest.mark.torch
def test_every_public_name_of_the_client_exists():
    pytest.importorskip("kernels")
    theirs = json.loads(python(PUBLIC))
    ours = json.loads(python(INSTALL + PUBLIC))
    assert set(theirs) <= set(ours)
    for name, parameters in theirs.items():
        assert set(parameters) <= set(ours[name]) or "named" in ours[name], name


CALLS = """
import json, os, sys, kernels
from pathlib import Path
# repo_id, revision, version, backend: arguments by position, as before 0.17
answers = [kernels.get_kernel("acme/toy", None, 1, "cpu").ANSWER]
answers.append(kernels.has_kernel("acme/toy", None, 1, "cpu"))
answers.append(len(kernels.get_kernel_variants("acme/toy", None, 1, "cpu")))
answers.append(kernels.get_local_kernel(Path(sys.argv[1]), "cpu").ANSWER)
answers.append(kernels.load_kernel("acme/toy", lockfile=Path(sys.argv[2]), backend="cpu").ANSWER)
answers.append(kernels.get_loaded_kernels()[0].metadata.name)
for repo, version in (("acme/toy", {}), ("acme/gone", {"version": 1})):
    try:
        kernels.get_kernel(repo, **version)
    except ValueError as error:
        answers.append(type(error).__name__)
print(json.dumps(answers))
"""


def test_calls_of_every_version_of_the_client(registry, build, tmp_path):
    built = build()
    done = publish(built, registry, "acme/toy")
    locked = lock(tmp_path / "kernels.lock", ("acme/toy", 1, done.commit))
    variables = {"HOME": str(tmp_path), "KERNFORGE_REGISTRY": str(registry.root)}
    result = run(sys.executable, "-c", INSTALL + CALLS, str(built), str(locked), **variables)
    assert result.returncode == 0, result.stderr
    refused = ["RequestError", "AbsentError"]
    assert json.loads(result.stdout) == [42, True, 1, 42, 42, "toy", *refused]


def test_errors_are_subclasses_of_the_errors_of_the_client():
    for ours, *theirs in (
        (errors.AbsentError, FileNotFoundError, ValueError),
        (errors.DependencyError, RuntimeError),
        (errors.MetadataError, ValueError),
        (errors.KernelError, ValueError),
        (errors.MissingLockError, FileNotFoundError),
        (errors.RequestError, ValueError),
        (errors.MissingPackageError, ImportError),
    ):
        assert all(issubclass(ours, each) for each in theirs), ours


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (["verify-signature", "a/b", "1"], ["verify", "a/b", "--version", "1"]),
        (
            ["verify-signature", "--all-variants", "--filter-unsigned", "a/b", "2"],
            ["verify", "--variant", "*", "--allow-unsigned", "a/b", "--version", "2"],
        ),
        (
            ["verify-signature", "a/b", "1", "--registry", "c"],
            ["verify", "a/b", "--version", "1", "--registry", "c"],
        ),
        (["info", "a/b", "--json"], ["info", "a/b", "--json"]),
        (["variants", "a/b", "--version", "2"], ["info", "a/b", "--version", "2"]),
        (["variants", "a/b", "--all-versions", "--json"], ["info", "--versions", "a/b", "--json"]),
    ],
)
def test_the_clients_command_line_is_translated(theirs, ours):
    assert client.translated(theirs) == ours


def test_every_command_of_the_client_is_parsed():
    for line in (
        *("download . --all-variants", "lock .", "info a/b --revision v1 --json"),
        *("versions a/b", "variants a/b --only-compatible --revision v1 --json"),
        *("variants a/b --all-versions", "verify-signature a/b 1 --filter-no-digest"),
    ):
        read(client.translated(line.split()), argparse.Namespace())


@pytest.mark.parametrize("line", ["versions acme/toy", "verify-signature acme/toy 1"])
def test_a_program_that_calls_the_clients_command_line(tmp_path, registry, build, line):
    publish(build(), registry, "acme/toy")
    program = (
        f"import sys\nsys.argv = ['kernels', *{line.split()!r}]\n"
        "from kernforge.__main__ import main_as_client\nmain_as_client()\n"
    )
    variables = {"HOME": str(tmp_path), "KERNFORGE_REGISTRY": str(registry.root)}
    done = run(sys.executable, "-c", program, **variables)
    if line.startswith("versions"):
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("1.0.0 ")
    else:  # it is not signed
        assert done.returncode != 0
        assert "sign" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
