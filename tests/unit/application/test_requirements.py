# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.application.requirements import Dependency, load_document, read_dependencies
from kernforge.errors import UsageError


def asked(text):
    return read_dependencies(load_document(f"[tool.kernels.dependencies]\n{text}"))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("1", {"version": 1}),
        ("'2'", {"version": 2}),
        ("'>=1.2,<2'", {"bounds": "<2,>=1.2"}),
        ("'1.2.3'", {"bounds": "==1.2.3"}),
        ("'v1.2.3'", {"bounds": "==1.2.3"}),
        ("{ revision = 'main' }", {"revision": "main"}),
        ("{ version = '~=1.2' }", {"bounds": "~=1.2"}),
    ],
)
def test_a_dependency_is_a_number_bounds_or_a_revision(value, wanted):
    assert asked(f"'owner/toy' = {value}") == (Dependency(repo_id="owner/toy", **wanted),)


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(UsageError) as error:
        asked(
            "'toy' = 1\n'o/a' = 'soon'\n'o/b' = -1\n'o/c' = true\n'o/d' = ''\n"
            "'o/e' = { revision = 'x', version = 1 }\n'o/f' = 1\n"
        )
    said = error.value.message
    assert all(
        text in said for text in ("'toy' is not owner/name", "'soon'", "-1", "True", "empty")
    )
    assert "'o/e'" in said
    assert "o/f" not in said


@pytest.mark.parametrize(
    ("dependency", "release", "fits"),
    [
        (Dependency(repo_id="o/n", version=1), "1.9.9", True),
        (Dependency(repo_id="o/n", version=1), "10.0.0", False),
        (Dependency(repo_id="o/n", bounds=">=1.2,<2"), "1.2.0", True),
        (Dependency(repo_id="o/n", bounds=">=1.2,<2"), "2.0.0", False),
        (Dependency(repo_id="o/n", revision="main"), "1.0.0", False),
    ],
)
def test_releases_are_held_against_what_is_asked_for(dependency, release, fits):
    assert dependency.allows(release) is fits


def test_no_table_asks_for_nothing_and_what_is_not_toml_is_reported():
    assert read_dependencies({}) == ()
    with pytest.raises(UsageError, match="is not a table"):
        read_dependencies({"tool": {"kernels": {"dependencies": 1}}})
    with pytest.raises(UsageError, match="is not TOML"):
        load_document("[")
