# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import UsageError
from kernforge.setuptools import machine


def test_flags_of_the_environment_are_words():
    variables = {"CFLAGS": "-O1 '-DA=b c'", "CPPFLAGS": "-g"}
    assert machine._words(variables, "CPPFLAGS", "CFLAGS", "CXXFLAGS") == ("-g", "-O1", "-DA=b c")
    with pytest.raises(UsageError, match="cannot be read: No closing quotation"):
        machine._words({"CFLAGS": "-DA='b"}, "CFLAGS")
