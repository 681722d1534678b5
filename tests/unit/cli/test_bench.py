# SPDX-License-Identifier: Apache-2.0
"""What the command refuses before it measures."""

import pytest
from support.commands import call

from kernforge.cli.main import main


@pytest.mark.parametrize("option", ["--out", "--visual"])
def test_a_place_that_takes_no_result_is_refused_before_anything_is_measured(
    tmp_path, capsys, option
):
    (tmp_path / "file").write_text("")
    missing = tmp_path / "none" / "now.html"
    for path in (tmp_path / "file" / "now.html", tmp_path, missing):
        with pytest.raises(SystemExit) as stop:
            main(["bench", str(tmp_path), option, str(path)])
        assert stop.value.code == 11
        assert str(path.parent) in capsys.readouterr().err
    assert not missing.parent.exists()
    assert (tmp_path / "file").is_file()


def test_rounds_that_give_no_interval_are_refused(project, capsys):
    assert call("bench", str(project), "--device", "cpu", "--rounds", "5") == 2
    assert "use --rounds 6 or more" in capsys.readouterr().err


def test_a_published_kernel_needs_a_version(capsys):
    assert call("bench", "acme/toy", "--device", "cpu") == 2
    assert "write acme/toy@v1" in capsys.readouterr().err
