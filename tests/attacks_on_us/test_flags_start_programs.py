# SPDX-License-Identifier: Apache-2.0
"""A stranger's build.toml has flags that start programs in the compiler's place."""

import json
from pathlib import Path

import pytest
from support import projects

from kernforge.builder.api import BuildRequest

CPU = "torch-stable-abi210-cpu-x86_64-linux"


@pytest.mark.native
def test_a_program_that_a_flag_starts_sees_the_sandbox_alone(tmp_path, kernforge_cli):
    root = projects.write(tmp_path / "project")
    marks = [tmp_path / "started", Path("/var/tmp/kernforge-was-here")]  # noqa: S108
    secret = tmp_path / "secret"
    secret.write_text("")
    tries = " ".join(f"touch {mark};" for mark in marks)
    program = f'test -e {secret} && exit 7; {tries} exec "$@"'
    text = (root / "build.toml").read_text().rstrip()
    asked = ("build", root, "--variant", CPU, "--untrusted", "--no-check")

    def with_program(program):
        flags = json.dumps(["-wrapper", f"sh,-c,{program},sh"])
        (root / "build.toml").write_text(f"{text}\ncxx-flags = {flags}\n")

    with_program("exit 9")
    kernforge_cli(*asked, expect=5)  # it is started
    with_program(program)
    done = kernforge_cli(*asked)
    assert (root / "build" / CPU).is_dir(), done.stdout + done.stderr
    assert not [mark for mark in marks if mark.exists()]


def test_a_strangers_build_requires_a_sandbox():
    assert BuildRequest(targets=(), untrusted=True).isolation == "required"
    assert BuildRequest(targets=(), untrusted=True, sandbox="off").isolation == "off"
    assert BuildRequest(targets=()).isolation == "auto"
