# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.application.project_lock import load_document, read_dependencies
from kernforge.errors import UsageError
from kernforge.registry.names import Request


def asked(text):
    return read_dependencies(load_document(f"[tool.kernels.dependencies]\n{text}"))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("1", {"version": "1"}),
        ("'2'", {"version": "2"}),
        ("'>=1.2,<2'", {"version": "<2,>=1.2"}),
        ("'1.2.3'", {"version": "==1.2.3"}),
        ("'v1.2.3'", {"version": "==1.2.3"}),
        ("{ revision = 'main' }", {"revision": "main"}),
        ("{ version = '~=1.2' }", {"version": "~=1.2"}),
    ],
)
def test_the_forms_of_a_requirement(value, wanted):
    assert asked(f"'owner/toy' = {value}") == (Request(repo_id="owner/toy", **wanted),)


def test_all_mistakes_are_listed():
    with pytest.raises(UsageError) as error:
        asked(
            "'toy' = 1\n'o/a' = 'soon'\n'o/b' = -1\n'o/c' = true\n'o/d' = ''\n"
            "'o/e' = { revision = 'x', version = 1 }\n'o/f' = 1\n"
        )
    said = error.value.message
    assert all(
        text in said for text in ("'toy' is not a repo id", "'soon'", "-1", "True", "'' is not a")
    )
    assert "'o/e'" in said
    assert "o/f" not in said


def test_an_invalid_document_is_refused():
    assert read_dependencies({}) == ()
    with pytest.raises(UsageError, match="is not a table"):
        read_dependencies({"tool": {"kernels": {"dependencies": 1}}})
    with pytest.raises(UsageError, match="is not TOML"):
        load_document("[")
