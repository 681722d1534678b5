# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge build`` refuses before it builds."""

from support.commands import call


def test_a_wrong_architecture_is_the_command_lines_fault(project, capsys):
    assert call("build", str(project), "--arch", "x") == 2
    assert "9.0a" in capsys.readouterr().err
