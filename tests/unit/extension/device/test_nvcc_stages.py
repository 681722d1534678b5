# SPDX-License-Identifier: Apache-2.0
import subprocess

import pytest

from kernforge.extension.device import nvcc_stages
from kernforge.system.process import Command, Completed

# What nvcc 13.0 says of one unit, the flags left out that decide nothing here.
DRY_RUN = """\
#$ _SPACE_=
#$ TOP=/cuda/bin/..
#$ CICC_PATH=/cuda/bin/../nvvm/bin
#$ INCLUDES="-I/cuda/include"
#$ "/usr/bin"/g++ -D__CUDA_ARCH_LIST__=900 -E -x c++ "a.cu" -o "../tmp/a.cpp4.ii"
#$ cudafe++ --gen_module_id_file --module_id_file_name "../tmp/a.module_id" "../tmp/a.cpp4.ii"
#$ "/usr/bin"/g++ -D__CUDA_ARCH__=900 -D__CUDA_ARCH_LIST__=900 -E "a.cu" -o "../tmp/a.cpp1.ii"
#$ "$CICC_PATH/cicc" --module_id_file_name "../tmp/a.module_id" "../tmp/a.cpp1.ii" -o "../tmp/a.ptx"
#$ ptxas -arch=sm_90 "../tmp/a.ptx" -o "../tmp/a.cubin"
#$ fatbinary --create="../tmp/a.fatbin" "--image3=kind=elf,sm=90,file=../tmp/a.cubin"
#$ "/usr/bin"/g++ -D__CUDA_ARCH__=900 -c -x c++ "../tmp/a.cudafe1.cpp" -o "a.o"
""".splitlines()
NVCC = Command(argv=("/cuda/bin/nvcc", "-c", "a.cu", "-o", "a.o"))


def test_the_devices_row_starts_before_the_hosts():
    text = nvcc_stages.stage_script(DRY_RUN)
    assert text is not None
    lines = text.splitlines()
    assert lines[:4] == [
        "export _SPACE_=''",
        "export TOP=/cuda/bin/..",
        "export CICC_PATH=/cuda/bin/../nvvm/bin",
        """export INCLUDES='"-I/cuda/include"'""",
    ]
    assert "a.cpp1.ii" in lines[4]
    assert lines[4].endswith("& device=$!")
    assert '--gen_module_id_file --module_id_file_name "../tmp/a.module_id.device"' in lines[4]
    assert "a.cpp4.ii" in lines[5]
    assert lines[-1].startswith('exec "/usr/bin"/g++')
    subprocess.run(["/bin/sh", "-n", "-c", text], check=True)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(DRY_RUN[:-1], id="no object"),
        pytest.param([*DRY_RUN[:-3], DRY_RUN[-4], *DRY_RUN[-3:]], id="two architectures"),
        pytest.param([*DRY_RUN, "#$ nvlink a.o"], id="another program"),
        pytest.param([line.replace("__CUDA_ARCH__", "X") for line in DRY_RUN], id="other marks"),
        pytest.param([], id="nothing"),
    ],
)
def test_another_row_of_commands_is_nvccs(lines):
    assert nvcc_stages.stage_script(lines) is None


@pytest.mark.parametrize(
    ("command", "answer", "ran"),
    [
        (Command(argv=("/usr/bin/g++", "-c", "a.cpp")), "", ["/usr/bin/g++"]),
        (Command(argv=("/cuda/bin/nvcc", "-cubin", "a.cu")), "", ["/cuda/bin/nvcc"]),
        (NVCC, "", ["/cuda/bin/nvcc", "/cuda/bin/nvcc"]),
        (NVCC, "\n".join(DRY_RUN), ["/cuda/bin/nvcc", "/bin/sh"]),
    ],
)
def test_what_runs(monkeypatch, command, answer, ran):
    seen = []

    def runner(one):
        seen.append(one.argv[0])
        return Completed(returncode=0, stdout="", stderr=answer if "--dryrun" in one.argv else "")

    monkeypatch.setattr(nvcc_stages, "run", runner)
    assert nvcc_stages.run_stages(command).returncode == 0
    assert seen == ran


def test_within_a_sandbox_all_of_it_runs_there(monkeypatch, tmp_path):
    enter = ("/usr/bin/unshare", "--mount", "--")
    seen = []

    def runner(one):
        seen.append(one.argv)
        told = "\n".join(DRY_RUN) if "--dryrun" in one.argv else ""
        return Completed(returncode=0, stdout="", stderr=told)

    monkeypatch.setattr(nvcc_stages, "run", runner)
    (tmp_path / "a.cu").write_text("int n;\n")
    argv = (*enter, *NVCC.argv[:2], "--expt-extended-lambda", *NVCC.argv[2:])
    nvcc_stages.run_stages(Command(argv=argv, cwd=tmp_path))
    told, ran = seen
    assert told[:-3] == (*enter, *NVCC.argv)  # a unit like this one does without the flag
    assert ran[:4] == (*enter, "/bin/sh")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("int n;\n", False),
        ("[[nodiscard]] Type f(float* x) { return x[0] + y; }\n", False),
        ("auto f = [=] __device__ (float v) { return v; };\n", True),
        ("auto f = [=] GPU_LAMBDA (float v) { return v; };\n", True),
    ],
)
def test_the_flag_for_lambdas_is_for_units_that_may_have_one(monkeypatch, tmp_path, text, kept):
    seen = []

    def runner(one):
        seen.append("--expt-extended-lambda" in one.argv)
        return Completed(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(nvcc_stages, "run", runner)
    (tmp_path / "a.cu").write_text(text)
    argv = ("/cuda/bin/nvcc", "-cubin", "--expt-extended-lambda", "a.cu", "-o", "a.cubin")
    assert nvcc_stages.run_stages(Command(argv=argv, cwd=tmp_path)).returncode == 0
    assert seen == [kept]


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        ('a.cu(1): error: namespace "std" has no member "vector"', [False, True]),
        ('a.cu(1): error: identifier "nonsense" is undefined', [False]),
    ],
)
def test_only_a_name_of_std_is_sought_with_the_flag(monkeypatch, tmp_path, said, runs):
    seen = []

    def runner(one):
        seen.append("--expt-extended-lambda" in one.argv)
        return Completed(returncode=0 if seen[-1] else 1, stdout="", stderr=said)

    monkeypatch.setattr(nvcc_stages, "run", runner)
    (tmp_path / "a.cu").write_text("int n;\n")
    argv = ("/cuda/bin/nvcc", "-cubin", "--expt-extended-lambda", "a.cu", "-o", "a.cubin")
    nvcc_stages.run_stages(Command(argv=argv, cwd=tmp_path))
    assert seen == runs
