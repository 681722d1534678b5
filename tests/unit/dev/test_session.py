# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from kernforge.dev.control import RoundEvents, Stop
from kernforge.dev.rounds import Round, Work
from kernforge.dev.session import DevOptions, Session
from kernforge.dev.warm_pytest import WarmPytest
from kernforge.system.environment import Environment


def test_a_failure_ends_with_its_file(tmp_path):
    """Else the build would not be good before an edit of a source."""
    environment = Environment({})
    options = DevOptions(root=tmp_path, place=tmp_path / "place", environment=environment)
    session = Session(options, tmp_path, WarmPytest(tmp_path, tmp_path, environment))
    session._current, session._complete = {"torch-cpu": Path("variant")}, True
    for name in ("gone", "there"):
        row = {"variant": "torch-cpu", "test": f"tests/test_{name}.py::test_a"}
        session._failing["torch-cpu", row["test"]] = row
    stop = Stop()
    for name, left in (("gone", 1), ("there", 0)):
        removed = (f"tests/test_{name}.py",)
        result = Round(number=2, files=removed, work=Work(tests=removed))
        session._test(result, RoundEvents(lambda *_: None, stop), stop)
        assert result.untested == {"torch-cpu": "the changed test files were removed"}
        assert len(result.failing) == left
    assert session._passed
