# SPDX-License-Identifier: Apache-2.0
"""An application's lock reaches those who install its wheel, whatever backend built it."""

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
from support.fresh_venv import build_tree_wheel
from support.variants import write_variant

from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("kernels")
pytest.importorskip("build")

PYPROJECT = """
[build-system]
requires = [{requires}]
build-backend = "{backend}"

[project]
name = "lock-app"
version = "1.2"
description = "an application"
{extra}
[tool.kernels.dependencies]
"owner/toy" = ">=1.0,<2"
"""
APP = '''
"""An application."""


def ours():
    import kernforge

    return kernforge.load_kernel("owner/toy").ANSWER


def theirs():
    # Without a file that client looks for the lock of its own distribution, kernels 0.17.2.
    import importlib.metadata
    import kernels

    home = importlib.metadata.distribution("lock-app")
    lock = home.locate_file("lock_app-1.2.dist-info/kernels.lock")
    return kernels.load_kernel("owner/toy", lockfile=lock, backend="cpu").ANSWER
'''
COPY = "[tool.kernforge.lock]\npackage = 'src/lock_app'\n"
HATCH = f"{COPY}[tool.hatch.build.targets.wheel]\npackages = ['src/lock_app']\n"
BACKENDS = {  # requires, build-backend, more of pyproject.toml, whether it is in the metadata
    "setuptools": ("'setuptools', 'kernforge'", "setuptools.build_meta", "", True),
    "hatchling": ("'hatchling'", "hatchling.build", HATCH, False),
    "flit": ("'flit_core'", "flit_core.buildapi", COPY, False),
    "uv": ("'uv_build'", "uv_build", COPY, False),
    "poetry": ("'poetry-core'", "poetry.core.masonry.api", COPY, False),
}


@pytest.fixture
def run(forked, monkeypatch):
    monkeypatch.delenv("LOCAL_KERNELS", raising=False)

    def call(*argv, path, registry, **more):
        more["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        more["PYTHONPATH"] = os.pathsep.join(map(str, path))
        more |= {"KERNFORGE_REGISTRY": registry, "KERNELS_CACHE": registry, "HF_HUB_OFFLINE": "1"}
        return forked(*argv, **more)

    return call


def unpack(wheel, into):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)
    return into


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Kernforge as it is installed, with the entry points that build backends look for."""
    wheel = build_tree_wheel(tmp_path_factory.mktemp("wheel"))
    return unpack(wheel, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """A registry with one kernel in pure Python, in a version that is asked for and a newer."""
    root = tmp_path_factory.mktemp("registry")
    for answer, version in ((42, "1.3.0"), (43, "2.0.0")):
        build, files = tmp_path_factory.mktemp("build"), {"__init__.py": f"ANSWER = {answer}\n"}
        write_variant(build, unique=f"{answer}", version=int(version[0]), files=files)
        publish(build, DirectoryRegistry(root), "owner/toy", version)
    return root


def write_project(root, name):
    """An application that is built by a backend; returns the text of its pyproject.toml."""
    requires, backend, extra, _ = BACKENDS[name]
    (root / "src/lock_app").mkdir(parents=True)
    (root / "src/lock_app/__init__.py").write_text(APP)
    text = PYPROJECT.format(requires=requires, backend=backend, extra=extra)
    (root / "pyproject.toml").write_text(text)
    return text


@pytest.mark.parametrize("name", BACKENDS)
def test_an_installed_application_finds_its_lock(name, site, registry, tmp_path, run):
    _, backend, _, in_metadata = BACKENDS[name]
    pytest.importorskip(backend.partition(".")[0])
    project = tmp_path / "project"
    write_project(project, name)
    place = {"path": [site], "registry": registry}
    locked = run("-m", "kernforge", "lock", project, "--json", cwd=tmp_path, **place)
    assert json.loads(locked.stdout)["package"] == (None if in_metadata else "src/lock_app")
    # By way of a source distribution, which must have the lock too.
    build = ("-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", project)
    run(*build, cwd=tmp_path, **place)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    installed = unpack(wheel, tmp_path / "installed")
    place["path"] = [installed, site]
    for who in ("ours", "theirs") if in_metadata else ("ours",):
        done = run("-c", f"import lock_app; print(lock_app.{who}())", cwd=tmp_path, **place)
        assert done.stdout.split()[-1] == "42"
    names = zipfile.ZipFile(wheel).namelist()
    home = "lock_app-1.2.dist-info" if in_metadata else "lock_app"
    assert {f"{home}/kernels.lock", f"{home}/kernforge-kernels.lock"} <= set(names)


def test_a_build_with_a_stale_lock_is_refused(site, registry, tmp_path, run):
    text = write_project(tmp_path, "setuptools")
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", tmp_path)
    place = {"cwd": tmp_path, "path": [site], "registry": registry}
    assert "there is no kernels.lock" in run(*build, expect=1, **place).stderr
    run("-m", "kernforge", "lock", **place)
    (tmp_path / "pyproject.toml").write_text(text.replace(">=1.0,<2", ">=2"))
    done = run(*build, expect=1, **place)
    assert "locked for <2,>=1.0, the project requires >=2" in done.stderr
    assert not list((tmp_path / "dist").glob("*.whl"))
