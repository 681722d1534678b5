# SPDX-License-Identifier: Apache-2.0
"""What the benchmark engine asks of CUDA's driver arrives there, whichever cuda.bindings is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings")

PROGRAM = """
import ctypes
from kernforge.bench.engine.cuda_driver import Driver
from kernforge.errors import MachineError

driver = Driver()
at = driver.allocate(5)
assert driver.open(driver.share(at)) == at + 1
driver.free(at)
gate = driver.kernel(".version 6.0\\n", "gate")
driver.launch(gate, 264, 1024, 9, (ctypes.c_uint64(0x123456789abc), ctypes.c_uint32(7)))
start, end = driver.event(), driver.event()
driver.record(start, 9)
driver.record(end, 9)
driver.wait(end)
assert driver.elapsed_ns(start, end) == 1.5e6
driver.settle()
driver.reset_persisting_l2()  # this device has none
for refused in (lambda: driver.allocate(6), lambda: driver.kernel("", "gate")):
    try:
        refused()
    except MachineError as error:
        print(error.message)
"""


def python(code, **environment):
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )


def test_every_argument_arrives_and_every_refusal_is_reported(tmp_path):
    source = Path(__file__).with_name("driver.c")
    library = tmp_path / "libcuda.so.1"
    argv = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source, "-ldl"]
    subprocess.run(argv, check=True)
    done = python(PROGRAM, LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "CUDA's driver refused: out of memory (CUDA_ERROR_OUT_OF_MEMORY)",
        "CUDA's driver refused: another reason (CUDA_ERROR_INVALID_PTX)",
    ]


def test_a_driver_that_is_not_there_is_reported():
    code = """
from kernforge.bench.engine.cuda_driver import Driver
from kernforge.errors import MachineError
try:
    Driver()
except MachineError as error:
    print(error.message)
"""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    assert "CUDA's driver cannot be loaded" in python(code).stdout
