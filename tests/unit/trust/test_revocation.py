# SPDX-License-Identifier: Apache-2.0
"""What ``trust revoke`` writes into a policy that is a table of a pyproject.toml."""

import pytest

from kernforge.errors import TrustError, UsageError
from kernforge.trust import signature
from kernforge.trust.policy import public_key, read
from kernforge.trust.revocation import revoke


def test_a_key_is_revoked_in_the_table_of_a_project(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "app"')
    pem = signature.new_key(None)[1].decode()
    assert revoke(project, key=pem, reason="lost 🔑")
    assert not revoke(project, key=pem)
    found = read(project.read_bytes(), str(project))
    assert found.revoked[0].key == public_key(pem, "the key")
    assert found.revoked[0].reason == "lost 🔑"


@pytest.mark.parametrize(
    ("text", "message"),
    [("tool = 1\n", "is not TOML"), ("[tool.kernforge]\ntrust = 1\n", "is not a table")],
)
def test_a_project_with_something_else_in_the_place_of_tables_is_refused(tmp_path, text, message):
    project = tmp_path / "pyproject.toml"
    project.write_text(text)
    with pytest.raises(TrustError, match=message):
        revoke(project, identity="me@example.org")
    assert project.read_text() == text


def test_what_is_not_a_public_key_is_not_revoked(tmp_path):
    with pytest.raises(UsageError, match="not an Ed25519 public key") as raised:
        revoke(tmp_path / "trust.toml", key="PRIVATE")
    assert ".pub" in raised.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"document": "5f0c"}, "'5f0c' is not the hash"),
        ({"document": "F" * 64}, "is not the hash"),
        ({"identity": ""}, "the identity to revoke is empty"),
    ],
)
def test_what_can_be_nothing_of_a_kernel_is_not_revoked(tmp_path, what, message):
    with pytest.raises(UsageError, match=message):
        revoke(tmp_path / "trust.toml", **what)
    assert not list(tmp_path.iterdir())
