# SPDX-License-Identifier: Apache-2.0
"""Each finding appears from the facts that mean it, and some on a machine that is really so."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from kernforge.artifact.version import Version2
from kernforge.build.execute import sandbox
from kernforge.cli.main import main
from kernforge.doctor import examine
from kernforge.doctor.facts import GB, Index, Machine, Nvcc, Place, Torch, TorchLock
from kernforge.doctor.rules import diagnose, stale
from kernforge.errors import StorageError
from kernforge.system import disk
from kernforge.system.process import Command, run

CUDA_TORCH = Torch(
    version="2.13.0+cu130",
    cuda=Version2(13, 0),
    archs=("sm_80", "sm_90", "compute_90"),
    gpus=(("H200", Version2(9, 0)),),
)
HEALTHY = Machine(
    system="Linux",
    cpu="x86_64",
    gcc=14,
    nvcc=Nvcc(path="/usr/local/cuda/bin/nvcc", version=Version2(13, 0), newest_gcc=15),
    gpu_devices=True,
    driver=Version2(13, 0),
    torch=CUDA_TORCH,
    places=(Place(use="the store", path="/s", free=100 * GB),),
)
OLD_ABI = replace(CUDA_TORCH, cxx11=False)
BLIND = replace(CUDA_TORCH, gpus=())
FULL = Place(use="the store", path="/s", free=GB // 2)
CROWDED = replace(FULL, free=5 * GB)
READ_ONLY = replace(FULL, free=100 * GB, trouble="Read-only file system")
REPLACED = replace(READ_ONLY, instead="they go to /tmp")


def test_nothing_is_found_on_a_healthy_machine():
    assert diagnose(HEALTHY) == ()


@pytest.mark.parametrize(
    ("facts", "rule", "severity"),
    [
        ({"system": "Darwin"}, "system", "error"),
        ({"glibc": Version2(2, 17)}, "glibc", "error"),
        ({"glibc": None}, "glibc", "error"),
        ({"gcc_trouble": ("no C++ compiler is installed", "install")}, "compiler", "error"),
        ({"cxx_headers": "vector: No such file"}, "cxx-headers", "error"),
        ({"static_libstdcxx": False}, "static-libstdcxx", "warning"),
        ({"has_python_headers": False}, "python-headers", "warning"),
        ({"torch": OLD_ABI}, "old-abi", "warning"),
        ({"cxxflags": "-O2 -D _GLIBCXX_USE_CXX11_ABI=0"}, "abi-flag", "error"),
        ({"driver": None}, "driver-library", "error"),
        ({"driver": Version2(12, 8)}, "driver-too-old", "error"),
        ({"torch": replace(CUDA_TORCH, cuda=Version2(13, 2))}, "driver-minor", "warning"),
        ({"torch": Torch(failure="ImportError: libcudart")}, "torch-import", "error"),
        ({"torch": Torch(version="2.13.0+cpu")}, "torch-without-cuda", "warning"),
        ({"torch": BLIND}, "no-visible-gpu", "error"),
        ({"torch": replace(CUDA_TORCH, archs=("sm_100",))}, "gpu-unknown-to-torch", "error"),
        ({"cuda_home": "/opt/none"}, "cuda-home", "warning"),
        ({"nvcc": Nvcc(path="/nvcc", version=None)}, "nvcc-broken", "warning"),
        ({"nvcc": Nvcc(path="/nvcc", version=Version2(12, 8))}, "nvcc-other-major", "warning"),
        ({"gcc": 16}, "gcc-too-new", "warning"),
        ({"places": (FULL,)}, "disk", "error"),
        ({"places": (CROWDED,)}, "disk", "warning"),
        ({"places": (READ_ONLY,)}, "not-writable", "error"),
        ({"places": (REPLACED,)}, "not-writable", "warning"),
        ({"max_jobs": "many"}, "max-jobs", "error"),
        ({"max_jobs": "-2"}, "max-jobs", "error"),
        ({"max_jobs": "0"}, "max-jobs", "warning"),
        ({"max_jobs": "17"}, "max-jobs", "warning"),
        ({"arch_list": "hopper"}, "arch-list", "error"),
        ({"arch_list": "8.0 8.6"}, "arch-list", "error"),
        ({"arch_list": "9.0;10.0a"}, "arch-list", "warning"),
        ({"missing": ("pydantic",)}, "extra-build", "skipped"),
        ({"torch": None}, "torch-missing", "skipped"),
        ({"memory": 4 * GB}, "memory", "warning"),
        ({"memory": GB // 2}, "memory", "error"),
        ({"sandbox": ("refused", "install bubblewrap")}, "sandbox", "warning"),
        ({"locks": (TorchLock(path="/l", held=False),)}, "stale-lock", "error"),
        ({"locks": (TorchLock(path="/l", held=None),)}, "unclear-lock", "skipped"),
        ({"indexes": (Index(url="https://i", trouble="refused"),)}, "index", "warning"),
        ({"indexes": None}, "index", "skipped"),
        ({"damaged": ("/s/t",)}, "store-damaged", "error"),
        ({"foreign": ("/s",)}, "store-foreign", "error"),
    ],
)
def test_each_fact_gives_its_finding_alone_with_a_hint(facts, rule, severity):
    (finding,) = diagnose(replace(HEALTHY, **facts))
    assert (finding.rule, finding.severity) == (rule, severity)
    assert finding.message
    assert finding.hint


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        (Version2(9, 0), ("sm_90",), True),
        (Version2(9, 0), ("sm_90a",), True),
        (Version2(8, 9), ("sm_86",), True),
        (Version2(8, 0), ("sm_86",), False),
        (Version2(12, 0), ("sm_90", "compute_90"), True),
        (Version2(12, 1), ("sm_120",), True),
        (Version2(7, 0), ("sm_75", "compute_75"), False),
    ],
)
def test_a_gpu_runs_code_of_its_major_or_older_ptx(capability, archs, runs):
    torch = replace(CUDA_TORCH, archs=archs, gpus=(("gpu", capability),))
    assert (diagnose(replace(HEALTHY, torch=torch)) == ()) is runs


def test_a_flag_for_the_new_abi_is_wrong_beside_a_torch_of_the_old_one():
    flag = "-D_GLIBCXX_USE_CXX11_ABI=1"
    assert diagnose(replace(HEALTHY, cxxflags=flag)) == ()
    found = diagnose(replace(HEALTHY, cxxflags=flag, torch=OLD_ABI))
    assert [finding.rule for finding in found] == ["abi-flag", "old-abi"]


@pytest.mark.parametrize(
    ("max_jobs", "arch_list"),
    [("", ""), (" 16 ", "9.0"), ("1", "9.0a"), ("8", "8.0+PTX"), ("8", "Hopper"), ("", "native")],
)
def test_usual_values_of_what_builds_read_are_nothing_wrong(max_jobs, arch_list):
    assert diagnose(replace(HEALTHY, max_jobs=max_jobs, arch_list=arch_list)) == ()


def test_one_job_is_never_too_much_for_the_memory():
    found = diagnose(replace(HEALTHY, max_jobs="1", memory=2 * GB))
    assert [finding.rule for finding in found] == ["memory"]
    found = diagnose(replace(HEALTHY, max_jobs="4", memory=9 * GB))
    assert [(finding.rule, finding.hint) for finding in found] == [("max-jobs", "MAX_JOBS=2")]


def test_each_gpu_that_the_list_of_architectures_lacks_is_named():
    torch = replace(CUDA_TORCH, gpus=(("A100", Version2(8, 0)), ("H200", Version2(9, 0))))
    found = diagnose(replace(HEALTHY, torch=torch, arch_list="9.0"))
    assert [(f.rule, f.severity, "A100" in f.message) for f in found] == [
        ("arch-list", "error", True)
    ]
    # Without a GPU nobody can say which the list is for.
    cpu = replace(HEALTHY, torch=Torch(version="2.13.0+cpu"), gpu_devices=False, driver=None)
    assert diagnose(replace(cpu, arch_list="7.5 8.0")) == ()


def test_a_held_lock_is_nobodys_trouble():
    machine = replace(HEALTHY, locks=(TorchLock(path="/l", held=True),))
    assert diagnose(machine) == ()
    assert stale(machine) == ()


@pytest.fixture
def doctor(monkeypatch, tmp_path, capsys):
    """A function that runs the command: its exit code and its document."""
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    monkeypatch.setattr(examine.host, "has_module", lambda _name: False)  # seconds to import

    def call(*argv):
        with pytest.raises(SystemExit) as stop:
            main(["doctor", "--offline", "--json", *argv])
        text = capsys.readouterr().out
        return stop.value.code, json.loads(text)

    return call


def _rules(document):
    return {finding["rule"] for finding in document["findings"]}


def test_fix_removes_a_lock_that_nobody_holds_and_no_other(doctor, tmp_path):
    dead, held = tmp_path / "extensions/py311_cpu/dead/lock", tmp_path / "extensions/alive/lock"
    for path in (dead, held):
        path.parent.mkdir(parents=True)
    dead.touch()
    if disk.is_open(dead) is None:
        pytest.skip("this file system grants no leases, so nothing can be proved on it")
    code = (
        "import os, sys; os.open(sys.argv[1], os.O_CREAT | os.O_EXCL); print(flush=True); input()"
    )
    argv = [sys.executable, "-c", code, str(held)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        code, document = doctor()
        assert (code, "stale-lock" in _rules(document)) == (4, True)
        assert dead.exists()
        _, document = doctor("--fix")
        assert document["removed"] == [str(dead)]
        assert "stale-lock" not in _rules(document)
        assert not dead.exists()
        assert held.exists()
        holder.communicate(b"\n")
    _, document = doctor("--fix")
    assert document["removed"] == [str(held)]


def test_a_missing_compiler_is_found_on_the_path(doctor, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    code, document = doctor()
    assert (code, "compiler" in _rules(document)) == (4, True)
    # What was found and the error are one document.
    assert document["error"] == "ToolchainError"
    assert "stop" in document["message"]


def test_a_broken_torch_is_told_in_its_own_words(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13 is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    machine = examine.examine({"PATH": os.environ["PATH"]}, run, ask_network=False)
    assert "libcudart.so.13 is missing" in machine.torch.failure


def test_a_tree_of_the_store_that_lost_its_files_is_found(doctor, tmp_path):
    tree = tmp_path / "home/store/toolchains/ab/abcd"
    tree.mkdir(parents=True)
    assert "store-damaged" in _rules(doctor()[1])
    (tree / "include").mkdir()
    (tree / "include" / "a.h").touch()
    assert "store-damaged" not in _rules(doctor()[1])


def test_a_full_disk_is_found_by_writing():
    script = (
        "mount -t tmpfs -o size=256k none /mnt && head -c 300000 /dev/zero > /mnt/x 2>/dev/null; "
        f"{sys.executable} -c 'from pathlib import Path; from kernforge.system import disk; "
        'print(disk.room(Path("/mnt/kernforge/store")))\''
    )
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine allows no mount namespace: {done.stderr.strip()}")
    assert done.stdout.strip() == "(0, 'No space left on device')"


def test_read_only_room_for_actions_stops_nothing(doctor, monkeypatch, tmp_path):
    def room(path):
        trouble = "Read-only file system" if str(path) == sandbox.ROOMS[0] else ""
        return 100 * GB, trouble

    monkeypatch.setattr(disk, "room", room)
    for isolated, told in ((("", ""), []), (("refused", "install bubblewrap"), ["warning"])):
        monkeypatch.setattr(examine, "_sandbox", lambda *_, isolated=isolated: isolated)
        found = [f for f in doctor()[1]["findings"] if f["rule"] == "not-writable"]
        assert [f["severity"] for f in found] == told


def test_no_directory_for_temporary_files_is_said_before_anything_else(
    doctor, monkeypatch, tmp_path
):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "nowhere")])
    code, document = doctor()
    assert code == 11
    assert document["message"].startswith("no directory takes temporary files")
    assert "TMPDIR" in document["hint"]
    with pytest.raises(StorageError, match="no directory takes temporary files"):
        run(Command(argv=("true",)))


def test_a_tmpdir_that_is_passed_over_is_named(monkeypatch, tmp_path, doctor):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (found,) = [f for f in doctor()[1]["findings"] if f["rule"] == "not-writable"]
    assert found["severity"] == "warning"
    assert "there is no such directory; they go to" in found["message"]


def test_a_file_system_at_a_name_with_spaces_and_letters_of_any_kind_is_known(tmp_path):
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/a / ext4 rw 0 0\nhost:/x /mnt/größe\\040zwei nfs4 rw 0 0\n", encoding="utf-8"
    )
    assert disk._holds("/mnt/größe zwei/lock", table) == "nfs4"
    assert disk._holds("/mnt/größe", table) == "ext4"


def test_an_index_that_does_not_answer_is_found(monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    (index,) = examine.examine(os.environ, run).indexes
    assert index.trouble
    assert "secret" not in index.url + index.trouble
