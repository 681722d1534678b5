# SPDX-License-Identifier: Apache-2.0
"""Which commands run for a compilation; that the bytes are nvcc's is tests/native/test_jit_edit."""

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
"""
LINES = DRY_RUN.splitlines()
LAMBDAS = "--expt-extended-lambda"


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Run nvcc for a text with a runner that answers; returns the command lines that ran."""

    def run(*words, text="int n;\n", said=DRY_RUN, fails=lambda _: False):
        lines = []

        def runner(one):
            lines.append(one.argv)
            wrong = fails(one.argv)
            answer = said if wrong or "--dryrun" in one.argv else ""
            return Completed(returncode=int(wrong), stdout="", stderr=answer)

        monkeypatch.setattr(nvcc_stages, "run", runner)
        (tmp_path / "a.cu").write_text(text)
        assert nvcc_stages.run_stages(Command(argv=words, cwd=tmp_path)).returncode == 0
        return lines

    return run


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(LINES[:-1], id="no object"),
        pytest.param([*LINES[:-3], LINES[-4], *LINES[-3:]], id="two architectures"),
        pytest.param([*LINES, "#$ nvlink a.o"], id="another program"),
        pytest.param([line.replace("__CUDA_ARCH__", "X") for line in LINES], id="other marks"),
        pytest.param([], id="nothing"),
    ],
)
def test_nvcc_runs_stages_that_are_not_expected(ran, lines):
    assert ran("/cuda/bin/nvcc", "-c", "a.cu", said="\n".join(lines))[-1][0] == "/cuda/bin/nvcc"


def test_a_sandbox_holds_all_stages(ran):
    enter = ("/usr/bin/unshare", "--mount", "--")
    told, script = ran(*enter, "/cuda/bin/nvcc", "-c", LAMBDAS, "a.cu")
    assert told[:-3] == (*enter, "/cuda/bin/nvcc", "-c", "a.cu")  # compiles without the flag
    assert script[:4] == (*enter, "/bin/sh")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("int n;\n", False),
        ("[[nodiscard]] Type f(float* x) { return x[0] + y; }\n", False),
        ("auto f = [=] __device__ (float v) { return v; };\n", True),
        ("auto f = [=] GPU_LAMBDA (float v) { return v; };\n", True),
    ],
)
def test_the_flag_for_lambdas_is_for_units_that_may_have_one(ran, text, kept):
    (line,) = ran("/cuda/bin/nvcc", "-cubin", LAMBDAS, "a.cu", text=text)
    assert (LAMBDAS in line) is kept


def test_a_missing_name_of_std_is_compiled_again_with_the_flag(ran):
    said = 'a.cu(1): error: namespace "std" has no member "vector"'
    lines = ran(
        "/cuda/bin/nvcc", "-cubin", LAMBDAS, said=said, fails=lambda argv: LAMBDAS not in argv
    )
    assert [LAMBDAS in line for line in lines] == [False, True]
