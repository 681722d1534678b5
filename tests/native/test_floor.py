# SPDX-License-Identifier: Apache-2.0
"""Link real objects against the stubs, run them here, and let auditwheel judge them."""

import ctypes
import sys
from pathlib import Path

import pytest
from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies
from support import abi_stubs
from support.programs import output

from kernforge.binary import abi_floor, elf

pytestmark = pytest.mark.native

DATA = Path(__file__).parents[1] / "data" / "native"
CPU = Architecture.detect().value


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A directory with stubs/ and heavy.o."""
    path = tmp_path_factory.mktemp("floor")
    abi_stubs.make(path / "stubs", CPU)
    compile_text(path, "heavy", (DATA / "heavy.cpp").read_text())
    return path


def compile_text(path: Path, name: str, text: str) -> str:
    (path / f"{name}.cpp").write_text(text)
    flags = ("-std=c++17", "-O1", "-fPIC", "-fno-gnu-unique")
    output(("g++", *flags, "-c", f"{name}.cpp", "-o", f"{name}.o"), path)
    return f"{name}.o"


def link(path: Path, name: str, *objects: str, **options) -> elf.Elf:
    args = abi_floor.link_args(stub_dir="stubs", backend="cpu", **options)
    output(("g++", "-o", f"{name}.so", *objects, *args), path)
    return elf.parse((path / f"{name}.so").read_bytes())


def policy(found: elf.Elf) -> tuple[int, str]:
    """What auditwheel makes of its symbol versions."""
    versions: dict[str, set[str]] = {}
    for symbol in found.undefined:
        if symbol.version:
            versions.setdefault(symbol.library, set()).add(symbol.version)
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture(found.machine))
    judged = policies.versioned_symbols_policy(versions)
    return judged.priority, judged.name


def floor_priority() -> int:
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture(CPU))
    return policies.get_policy_by_name(f"{abi_floor.POLICY}_{CPU}").priority


@pytest.fixture(scope="module")
def heavy(workshop):
    return link(workshop, "heavy", "heavy.o")


def test_heavy_cpp17_keeps_to_the_floor(heavy):
    priority, name = policy(heavy)
    assert priority >= floor_priority(), name
    assert abi_floor.unresolvable(heavy.undefined) == ()


def test_the_machines_own_link_does_not(workshop):
    output(("g++", "-shared", "-o", "plain.so", "heavy.o"), workshop)
    found = elf.parse((workshop / "plain.so").read_bytes())
    # The same sources, so that the test above can fail at all.
    assert policy(found)[0] < floor_priority()
    assert "pthread_cond_clockwait" in {s.name for s in abi_floor.unresolvable(found.undefined)}


def test_torch_is_needed_and_archive_symbols_are_hidden(heavy):
    assert heavy.needed[:5] == (*abi_floor.torch_sonames("cpu"), "libstdc++.so.6", "libc.so.6")
    assert not heavy.rpath
    assert {"files", "numbers", "threads", "errors"} <= {s.name for s in heavy.exported}
    leaked = [s.name for s in heavy.exported if "filesystem7__cxx114path5" in s.name]
    assert not [name for name in leaked if "_M_split" in name]
    assert not [s for s in heavy.exported if s.unique]


@pytest.mark.torch
def test_it_loads_beside_torch_and_runs(workshop, heavy, tmp_path):
    program = (
        "import _ctypes, ctypes, sys, torch\n"
        "so = ctypes.CDLL(sys.argv[1])\n"
        "print(so.files(sys.argv[2].encode()), so.numbers(), so.threads(), so.errors())\n"
        "sys.stdout.flush()\n"
        "_ctypes.dlclose(so._handle)\n"
        "print('after')\n"
    )
    argv = ("env", "LD_BIND_NOW=1", sys.executable, "-c", program)
    out = output((*argv, str(workshop / "heavy.so"), str(tmp_path)), workshop)
    # "closed" comes from a static destructor, which has to run when the library goes.
    assert out.split() == ["205", "370", "122", "17511", "closed", "after"]


def test_a_function_newer_than_the_floor_is_named(workshop):
    text = (
        'extern "C" int close_range(unsigned, unsigned, int);'
        'extern "C" int use() { return close_range(90, 91, 0); }'
    )
    found = link(workshop, "newer", compile_text(workshop, "newer", text))
    assert [s.name for s in abi_floor.unresolvable(found.undefined)] == ["close_range"]


def test_without_the_static_library_newer_cpp_is_named(workshop):
    found = link(workshop, "bare", "heavy.o", libstdcxx_archive=False)
    names = {s.name for s in abi_floor.unresolvable(found.undefined)}
    assert "_ZNSt10filesystem10remove_allERKNS_7__cxx114pathE" in names


COMPAT = """
#include <sstream>
struct Timespec { long seconds, nanoseconds; };
extern "C" {
int old_gettime(int, Timespec*) __asm__("clock_gettime");
int waits(void*, void*, int, const Timespec*) __asm__("pthread_cond_clockwait");
int locks(void*, int, const Timespec*) __asm__("pthread_mutex_clocklock");
int lock(void*) __asm__("pthread_mutex_lock");
long number(const char*, char**, int) __asm__("__isoc23_strtol");
int scan(const char*, const char*, ...) __asm__("__isoc23_sscanf");
unsigned rnd() __asm__("arc4random");
int at_exit(void (*)()) __asm__("atexit");
extern char single __asm__("__libc_single_threaded");
static long long elapsed(int clock, Timespec since) {
  Timespec now;
  old_gettime(clock, &now);
  return (now.seconds - since.seconds) * 1000 + (now.nanoseconds - since.nanoseconds) / 1000000;
}
// 110 (ETIMEDOUT) when a wait until 50 ms from now on a clock ended then; how long it took if not.
int timed(int clock, int how) {
  alignas(16) char mutex[64] = {}, condition[64] = {};
  lock(mutex);
  Timespec start, until;
  old_gettime(clock, &start);
  until = {start.seconds, start.nanoseconds + 50000000};
  if (until.nanoseconds >= 1000000000) until = {until.seconds + 1, until.nanoseconds - 1000000000};
  int result = how ? locks(mutex, clock, &until) : waits(condition, mutex, clock, &until);
  long long took = elapsed(clock, start);
  return took >= 49 && took < 60000 ? result : -int(took) - 1;
}
int others() {
  int a = 0, b = 0;
  scan("7 9", "%d %d", &a, &b);
  std::stringstream text;
  text << number("35", nullptr, 10);
  return a + b + int(text.str().size()) + (rnd() != rnd()) + single;
}
int leave() { return at_exit([] {}); }
}
"""


def test_what_newer_headers_ask_for_works(workshop):
    found = link(workshop, "compat", compile_text(workshop, "compat", COMPAT))
    assert abi_floor.unresolvable(found.undefined) == ()
    # torch's stubs are needed but not there: leave them out to run without torch.
    args = [a for a in abi_floor.link_args(stub_dir="stubs", backend="cpu") if "torch" not in a]
    args = [a for a in args if "libc10" not in a]
    output(("g++", "-o", "compat.so", "compat.o", *args), workshop)
    library = ctypes.CDLL(str(workshop / "compat.so"))
    realtime, monotonic = 0, 1
    for clock in (realtime, monotonic):
        assert [library.timed(clock, how) for how in (0, 1)] == [110, 110]
    assert library.others() == 7 + 9 + 2 + 1 + 0
    assert library.leave() == 0


def test_only_what_is_used_of_the_extras_is_kept(workshop):
    name = compile_text(workshop, "tiny", 'extern "C" int one() { return 1; }')
    found = link(workshop, "tiny", name)
    assert {symbol.name for symbol in found.undefined} <= {"__cxa_finalize", "_Unwind_Resume"}
    assert {symbol.name for symbol in found.exported} == {"one"}
