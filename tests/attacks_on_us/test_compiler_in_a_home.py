# SPDX-License-Identifier: Apache-2.0
"""A host compiler below $HOME: an action may see the compiler, but not the home (A8)."""

import shutil
from pathlib import Path

import pytest
from support import trees
from support.attacks import SECRET

from kernforge.builder import sandbox
from kernforge.builder.sandbox import ActionDirectory
from kernforge.system import process

PLACES = ["bin/g++", ".local/bin/g++", "opt/gcc/bin/g++", "conda/envs/x/bin/x86_64-linux-gnu-g++"]
SECRETS = [
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".cache/huggingface/token",
    ".local/share/keyrings/key",
    ".local/lib/python3.11/site-packages/secret.py",
    "bin/deploy-with-token",
    ".local/bin/token",
    "notes.txt",
    "lib/notes.txt",
    "include/notes.h",
    "opt/gcc/notes.txt",
]


@pytest.fixture
def home(tmp_path, monkeypatch):
    found = trees.write(tmp_path / "home", dict.fromkeys(SECRETS, SECRET))
    monkeypatch.setenv("HOME", str(found))
    return found


def directory(tmp_path, trees):
    for name in ("work", "tmp"):
        (tmp_path / "action" / name).mkdir(parents=True)
    return ActionDirectory(
        path=tmp_path / "action", inside=sandbox.fixed_path("a" * 64), trees=trees
    )


@pytest.mark.parametrize("place", PLACES)
def test_an_action_reads_nothing_of_the_home(jail, home, tmp_path, place):
    compiler = home / place
    compiler.parent.mkdir(parents=True, exist_ok=True)
    compiler.symlink_to(shutil.which("g++") or "/bin/true")
    # Where a compiler that is installed there keeps its own libraries.
    libraries = compiler.parents[1] / "lib" / "gcc" / "x86_64-linux-gnu" / "12"
    libraries.mkdir(parents=True)
    (libraries / "libgcc.a").write_text("of the compiler\n")
    where = directory(tmp_path, {"cxx": str(compiler)})
    read = "; ".join(f"cat {home / name}" for name in SECRETS)
    listing = f"find {home} -type f; ls -laR {home}"
    script = f"{read}; {listing}; cat {libraries}/libgcc.a"
    done = process.run(sandbox.command(jail, where, ("/bin/sh", "-c", script)))
    assert "secret" not in done.stdout, done.stdout
    assert "of the compiler" in done.stdout, done.stderr
    for name in SECRETS:
        assert Path(name).name not in done.stdout, f"its name is seen: {name}"


def test_the_compiler_in_a_home_still_compiles(jail, home, tmp_path):
    real = shutil.which("g++")
    if real is None:
        pytest.skip("there is no g++")
    compiler = home / "bin" / "g++"
    compiler.unlink(missing_ok=True)
    compiler.symlink_to(real)
    where = directory(tmp_path, {"cxx": str(compiler)})
    (where.work / "a.cpp").write_text("#include <vector>\nint f() { return std::vector{1}[0]; }\n")
    done = process.run(sandbox.command(jail, where, (str(compiler), "-c", "a.cpp", "-o", "a.o")))
    assert done.returncode == 0, done.stderr
    assert (where.work / "a.o").is_file()
