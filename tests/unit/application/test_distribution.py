# SPDX-License-Identifier: Apache-2.0
import tomllib

import pytest

from kernforge.application.distribution import find_route
from kernforge.errors import UsageError


def document(backend, *, requires="", extra=""):
    text = f"[build-system]\nbuild-backend = '{backend}'\nrequires = [{requires}]\n"
    return tomllib.loads(text + "[project]\nname = 'My-App'\n" + extra)


@pytest.mark.parametrize(
    ("backend", "extra", "package"),
    [
        ("flit_core.buildapi", "", "src/my_app"),
        ("flit_core.buildapi", "[tool.flit.module]\nname = 'other'", "other"),
        ("uv_build", "", "src/my_app"),
        ("uv_build", "[tool.uv.build-backend]\nmodule-root = ''\nmodule-name = 'other'", "other"),
        ("poetry.core.masonry.api", "", "src/my_app"),
        (
            "poetry.core.masonry.api",
            "[[tool.poetry.packages]]\ninclude = 'inner'\nfrom = 'lib'",
            "lib/inner",
        ),
        ("hatchling.build", "[tool.hatch.build.targets.wheel]\npackages = ['other']", "other"),
        ("pdm.backend", "", "src/my_app"),
        ("setuptools.build_meta", "[tool.kernforge.lock]\npackage = 'other'", "other"),
    ],
)
def test_without_hooks_the_lock_lies_in_the_package(backend, extra, package):
    known = {"src/my_app", "other", "lib/inner"}
    found = find_route(document(backend, extra=extra), known.__contains__)
    assert (found.package, found.arrives) == (package, True)


@pytest.mark.parametrize(
    ("backend", "requires", "extra"),
    [
        ("setuptools.build_meta", "'setuptools>=70', 'kernforge[x]>=1'", ""),
        ("setuptools.build_meta", "'Kernels'", ""),
        ("hatchling.build", "'kernforge'", "[tool.hatch.build.hooks.kernforge]"),
    ],
)
def test_hooks_put_it_into_the_metadata(backend, requires, extra):
    found = find_route(document(backend, requires=requires, extra=extra), lambda _path: True)
    assert found.package is None
    assert found.arrives
    assert "metadata" in found.text


def test_a_lock_that_would_not_arrive_is_reported_with_the_remedy():
    missing = find_route(document("setuptools.build_meta"), lambda _path: True)
    assert not missing.arrives
    assert "add kernforge to requires" in missing.text
    missing = find_route(document("uv_build"), lambda _path: False)
    assert not missing.arrives
    assert "[tool.kernforge.lock] package" in missing.text
    assert find_route({}, lambda _path: False).arrives  # a project that is not installed
    with pytest.raises(UsageError, match="'nowhere', which is not a package"):
        find_route({"tool": {"kernforge": {"lock": {"package": "nowhere"}}}}, lambda _path: False)


@pytest.mark.parametrize("wrong", ["1", "true", "{}", "[[]]"])
def test_what_is_wrong_for_another_tool_is_not_ours_to_report(wrong):
    for backend, table in (
        ("uv_build", "tool.uv.build-backend]\nmodule-name"),
        ("poetry.core", "tool.poetry]\npackages"),
        ("hatchling.build", "tool.hatch.build.targets.wheel]\npackages"),
    ):
        text = (
            f'[build-system]\nrequires = {wrong}\nbuild-backend = "{backend}"\n[{table} = {wrong}\n'
        )
        assert "no package was found" in find_route(tomllib.loads(text), lambda _: False).text
