# SPDX-License-Identifier: Apache-2.0
"""Facts of the machine, some in the state that they describe."""

import json
import os

import pytest
from support.commands import call

from kernforge.doctor import examine
from kernforge.errors import StorageError
from kernforge.system.environment import Environment
from kernforge.system.process import Command, run


@pytest.fixture
def doctor(monkeypatch, tmp_path, capsys):
    """A function that runs the command: its exit code and its document."""
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(examine.host, "has_module", lambda _name: False)  # seconds to import

    def ask():
        code = call("doctor", "--offline", "--json")
        return code, json.loads(capsys.readouterr().out)

    return ask


def _rules(document):
    return {finding["rule"] for finding in document["findings"]}


def test_a_missing_compiler_is_found_on_the_path(doctor, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    code, document = doctor()
    assert (code, "compiler" in _rules(document)) == (4, True)
    # What was found and the error are one document.
    assert document["error"] == "ToolchainError"
    assert "kernels cannot be built or run here" in document["message"]


def test_a_broken_torch_is_reported_with_its_error(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13 is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    machine = examine.examine(Environment({"PATH": os.environ["PATH"]}), run, ask_network=False)
    assert "libcudart.so.13 is missing" in machine.torch.failure
    assert machine.torch.places[0] == str(tmp_path / "torch.py")


@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH", "KERNFORGE_CUDA_HOME"])
def test_a_variable_that_names_no_toolkit_is_an_error(doctor, monkeypatch, tmp_path, name):
    for other in ("CUDA_HOME", "CUDA_PATH", "KERNFORGE_CUDA_HOME"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    (found,) = [f for f in doctor()[1]["findings"] if f["rule"] == "cuda-home"]
    assert f"{name}={tmp_path}/nowhere is not a CUDA toolkit" in found["message"]


def test_a_store_that_cannot_be_written_is_one_finding(doctor, monkeypatch):
    monkeypatch.setenv("KERNFORGE_HOME", "/proc/home")
    found = [f for f in doctor()[1]["findings"] if f["where"].startswith("/proc/home")]
    assert [(f["rule"], f["where"]) for f in found] == [("not-writable", "/proc/home/store")]


def test_a_missing_directory_for_temporary_files_is_reported_first(doctor, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "nowhere")])
    code, document = doctor()
    assert code == 11
    assert document["message"].startswith("no directory for temporary files is writable")
    assert "TMPDIR" in document["hint"]
    with pytest.raises(StorageError, match="no directory for temporary files is writable"):
        run(Command(argv=("true",)))


def test_an_unreachable_index_is_found_without_its_password(monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    ((url, trouble),) = examine.examine(Environment.read(), run).unreachable.items()
    assert trouble
    assert "secret" not in url + trouble
