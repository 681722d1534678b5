# SPDX-License-Identifier: Apache-2.0
"""Somebody writes to a kernel's shared objects while it is verified and loaded (B6).

A process changes four bytes of the file to and fro, in place, as fast as it can. What is loaded must
be what was verified, or nothing. ``KERNFORGE_TEST_RACES=1000`` makes the long run of it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernforge.artifact.integrity import digest_tree
from kernforge.system import files

RACES = int(os.environ.get("KERNFORGE_TEST_RACES", "60"))
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not COMPILER, reason="there is no C compiler on this machine"),
]

# The layout of PyModuleDef, so that the headers of Python are not needed.
MODULE = r"""
#include <stddef.h>
static struct {
  ptrdiff_t count; void *type, *init; ptrdiff_t index; void *copy;
  const char *name, *doc; ptrdiff_t size; void *rest[5];
} def = {1, NULL, NULL, 0, NULL, "_part", NULL, -1, {NULL}};
extern void *PyModule_Create2(void *, int);
extern int PyModule_AddStringConstant(void *, const char *, const char *);
extern int more(void);
const char answer[] = "good answer";
void *PyInit__part(void) {
  void *module = PyModule_Create2(&def, 1013);
  PyModule_AddStringConstant(module, "ANSWER", answer);
  return module;
}
"""
# Loads a kernel in forked processes, each of which finds nothing loaded; counts what came of it.
LOADS = """
import collections, json, os, pathlib, sys
from kernforge.artifact.metadata import Metadata
from kernforge.errors import IntegrityError
from kernforge.loader import api
from kernforge.loader.search import Node
from kernforge.system.environment import Environment
from kernforge.trust.admission import Admission
import ctypes

path, turns = pathlib.Path(sys.argv[1]), int(sys.argv[2])
metadata = Metadata.from_json((path / "metadata.json").read_bytes())
node = Node(
    path=path, link_root=path, metadata=metadata, host=None, admission=Admission(rules=())
)
outcomes = collections.Counter()
for _ in range(turns):
    child = os.fork()
    if not child:
        try:
            answer = api._load(node, Environment.live(), check_arch=False).answer()
            code = 0 if answer.startswith("good") else 2
        except IntegrityError:
            code = 1
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 3
        os._exit(code)
    outcomes[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
print(json.dumps([outcomes[n] for n in range(4)]))
"""
WRITER = """
import mmap, sys
with open(sys.argv[1], "r+b") as stream:
    text = mmap.mmap(stream.fileno(), 0)
at = text.find(b"good answer")
print("writing", flush=True)
while True:
    for _ in range(int(sys.argv[2])):
        text[at : at + 4] = b"evil"
    for _ in range(int(sys.argv[2])):
        text[at : at + 4] = b"good"
"""
WAYS = {
    "import": "from ._part import ANSWER\ndef answer(): return ANSWER\n",
    "import, late": "def answer():\n    from ._part import ANSWER\n    return ANSWER\n",
    "ctypes": "import ctypes, os\n"
    "lib = ctypes.CDLL(os.path.join(os.path.dirname(__file__), '_part.so'))\n"
    "def answer(): return bytes((ctypes.c_char * 4).in_dll(lib, 'answer')).decode()\n",
}


def compile_library(path: Path, source: str = MODULE, *flags: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), *flags],
        input=source,
        text=True,
        check=True,
    )
    return path


def race(path: Path, turns: int, pause: int) -> list[int]:
    """Good, refused, evil and failed loads of a kernel whose library changes all the time."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path / "_part.so"), str(pause)], stdout=subprocess.PIPE
    )
    try:
        assert writer.stdout.readline()
        done = subprocess.run(
            [sys.executable, "-c", LOADS, str(path), str(turns)],
            check=True,
            capture_output=True,
            text=True,
        )
        sys.stderr.write(done.stderr[-2000:])
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_a_writer_never_gets_its_bytes_loaded(tmp_path, write_variant, way):
    library = compile_library(tmp_path / "torch-cpu" / "_part.so")
    content = library.read_bytes()
    path = write_variant(tmp_path, unique="race", files={"__init__.py": WAYS[way]})
    outcomes = [0, 0, 0, 0]
    # The writer's bytes stay for a moment that is shorter and longer than a load.
    for pause in (1, 100, 10_000):
        library.write_bytes(content)
        turns = race(path, -(-RACES // 3), pause)
        outcomes = [a + b for a, b in zip(outcomes, turns, strict=True)]
    _, refused, evil, failed = outcomes
    assert (evil, failed) == (0, 0)
    assert refused > 0


IMPORT = {"__init__.py": "from ._part import ANSWER\n"}
PLAIN = 'const char answer[] = "good answer";\n'
# Prints what a kernel's ``run`` gives, in a new process.
RUN = """
import sys
from kernforge import get_local_kernel
kernel = get_local_kernel(sys.argv[1], check_arch=False)
print(kernel.run())
"""


def run(path: Path, *, code: str = RUN) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr


def test_a_debugger_finds_the_file_and_a_module_its_own(tmp_path, write_variant):
    compile_library(tmp_path / "torch-cpu" / "_part.so")
    lines = (
        "from . import _part\n"
        "def run():\n"
        "    maps = open('/proc/self/maps').read()\n"
        "    return _part.__file__, _part.__spec__.origin, 'memfd:_part.so' in maps\n"
    )
    path = write_variant(tmp_path, unique="names", files={"__init__.py": lines})
    file = str(path / "_part.so")
    assert run(path) == str((file, file, True))


def test_nobody_can_write_to_what_is_loaded(tmp_path, write_variant):
    compile_library(tmp_path / "torch-cpu" / "_part.so")
    lines = (
        "from . import _part\n"
        "import os\n"
        "def run():\n"
        "    for fd in map(int, os.listdir('/proc/self/fd')):\n"
        "        link = f'/proc/self/fd/{fd}'\n"
        "        if os.path.islink(link) and 'memfd:_part' in os.readlink(link):\n"
        "            try:\n"
        "                with open(link, 'r+b') as stream:\n"
        "                    stream.write(b'evil')\n"
        "            except PermissionError:\n"
        "                return 'refused'\n"
    )
    path = write_variant(tmp_path, unique="sealed", files={"__init__.py": lines})
    assert run(path) == "refused"


def test_a_library_that_is_needed_beside_is_loaded_too(tmp_path, write_variant):
    place = tmp_path / "torch-cpu"
    inner = 'const char *more(void) { return "inner"; }\n'
    outer = "extern const char *more(void); const char *outer(void) { return more(); }\n"
    compile_library(place / "libs/libinner.so.1", inner, "-Wl,-soname,libinner.so.1")
    compile_library(
        place / "libouter.so",
        outer,
        *("-Wl,-rpath,$ORIGIN/libs", "-L", str(place / "libs"), "-l:libinner.so.1"),
    )
    lines = (
        "import ctypes, pathlib\n"
        "lib = ctypes.CDLL(str(pathlib.Path(__file__).with_name('libouter.so')))\n"
        "lib.outer.restype = ctypes.c_char_p\n"
        "def run(): return lib.outer().decode()\n"
    )
    path = write_variant(tmp_path, unique="beside", files={"__init__.py": lines})
    assert run(path) == "inner"
    shutil.copy(place / "libouter.so", place / "libs/libinner.so.1")
    assert "libinner.so.1" in run(path)


@pytest.mark.torch
def test_torch_opens_what_was_verified(tmp_path, write_variant):
    compile_library(tmp_path / "torch-cpu" / "_part.so", PLAIN)
    lines = (
        "import pathlib, torch\n"
        "file = pathlib.Path(__file__).with_name('_part.so')\n"
        "torch.ops.load_library(file)\n"
        "maps = open('/proc/self/maps').read()\n"
        "def run(): return 'memfd:_part.so' in maps, str(file) in maps\n"
    )
    path = write_variant(tmp_path, unique="torch", files={"__init__.py": lines})
    assert run(path) == "(True, False)"


def test_tvm_ffi_opens_what_was_verified(tmp_path, write_variant):
    pytest.importorskip("tvm_ffi")
    variant = "tvm-ffi01-cpu-x86_64-linux"
    compile_library(tmp_path / variant / "_part.so", PLAIN)
    lines = (
        "import pathlib, tvm_ffi\n"
        "file = pathlib.Path(__file__).with_name('_part.so')\n"
        "tvm_ffi.load_module(str(file))\n"
        "maps = open('/proc/self/maps').read()\n"
        "def run(): return 'memfd:_part.so' in maps, str(file) in maps\n"
    )
    path = write_variant(tmp_path, variant=variant, unique="tvm", files={"__init__.py": lines})
    assert run(path, code=RUN.replace("from kernforge", "import torch\nfrom kernforge")) == (
        "(True, False)"
    )


@pytest.mark.parametrize("change", ["replaced", "added"])
def test_a_library_that_changes_later_is_not_loaded(tmp_path, write_variant, change):
    place = tmp_path / "torch-cpu"
    compile_library(place / "_part.so")
    lines = (
        "import os, pathlib, sys, ctypes\n"
        "here = pathlib.Path(__file__).parent\n"
        "def run():\n"
        "    name = 'added.so' if sys.argv[2] == 'added' else '_part.so'\n"
        "    text = (here / '_part.so').read_bytes().replace(b'good', b'evil')\n"
        "    (here / 'new').write_bytes(text)\n"
        "    (here / 'new').rename(here / name)\n"
        "    ctypes.CDLL(str(here / name))\n"
    )
    path = write_variant(tmp_path, unique="later", files={"__init__.py": lines})
    code = RUN.replace("import sys", f"import sys\nsys.argv.append({change!r})")
    assert "changed after it was verified" in run(path, code=code)


def test_an_import_that_failed_is_tried_again_with_the_same_library(tmp_path, write_variant):
    compile_library(tmp_path / "torch-cpu" / "_part.so")
    lines = (
        "import sys\n"
        "from . import _part\n"
        "if not hasattr(sys, 'again'):\n"
        "    sys.again = True\n"
        "    raise RuntimeError('the first time')\n"
        "def run():\n"
        "    maps = open('/proc/self/maps').read().splitlines()\n"
        "    return len({l.split()[4] for l in maps if 'memfd:_part' in l})\n"
    )
    path = write_variant(tmp_path, unique="again", files={"__init__.py": lines})
    code = RUN.replace(
        "kernel =",
        "try:\n    get_local_kernel(sys.argv[1], check_arch=False)\n"
        "except RuntimeError:\n    pass\nkernel =",
    )
    assert run(path, code=code) == "1"


def test_what_lies_where_nothing_may_be_executed_is_not_loaded(tmp_path, write_variant):
    compile_library(tmp_path / "build" / "torch-cpu" / "_part.so")
    path = write_variant(tmp_path / "build", unique="noexec", files=IMPORT)
    place = tmp_path / "mounted"
    files.make_dir(place)
    script = f"mount -t tmpfs -o noexec none {place} && cp -r {path} {place}/torch-cpu && exec "
    program = shutil.which("unshare")
    command = [program or "unshare", "-rm", "sh", "-c", script + '"$@"', "sh"]
    if not program or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        [*command, sys.executable, "-c", RUN, str(place / "torch-cpu")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "noexec" in done.stderr
    assert "MachineError" in done.stderr


def test_the_digest_is_of_what_was_copied(tmp_path, write_variant):
    path = write_variant(tmp_path, unique="same", files={"__init__.py": ""})
    compile_library(path / "_part.so")
    from kernforge.loader.libraries import Libraries  # noqa: PLC0415 - beside what it is for

    digest = digest_tree(path)
    libraries = Libraries(path, digest)
    again = digest_tree(path, opened=libraries.open)
    libraries.close_unused()
    assert again == digest
