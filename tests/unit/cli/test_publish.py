# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge publish`` says before it publishes."""

from support.commands import call
from support.manifests import CPU_AND_METAL


def test_a_branch_that_is_not_followed_is_named(tmp_path, write_variant, capsys):
    hub = '[general.hub]\nbranch = "next"\n[torch]'
    (tmp_path / "build.toml").write_text(CPU_AND_METAL.replace("[torch]", hub))
    for name in ("op.cpp", "op.mm"):
        (tmp_path / name).touch()
    write_variant(tmp_path / "build", name="my-op")
    said = ("--registry", str(tmp_path / "registry"), "--repo-id", "me/my-op", "--dry-run")
    assert call("publish", str(tmp_path), *said) == 0
    assert "branch = 'next' is not used: a version is published on v1" in capsys.readouterr().err
