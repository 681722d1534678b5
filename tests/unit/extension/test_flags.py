# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import UsageError
from kernforge.extension import flags as jit_flags


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (None, ()),
        (["", "-g"], ("-g",)),
        (["-O3 -g", '-DX="a b"'], ("-O3", "-g", "-DX=a b")),
        (["-DSCALE=(1 + 1)"], ("-DSCALE=(1 + 1)",)),
        (["-I inc", "-I", "inc"], ("-I", "inc", "-I", "inc")),
        (["-gencode arch=compute_90,code=sm_90"], ("-gencode", "arch=compute_90,code=sm_90")),
        (
            ["--relocatable-device-code true -Xptxas -v"],
            ("--relocatable-device-code", "true", "-Xptxas", "-v"),
        ),
        ("-L lib -lm a.o libb.so.1", ("-L", "lib", "-lm", "a.o", "libb.so.1")),
        (
            ["-default-stream per-thread -ftz true"],
            ("-default-stream", "per-thread", "-ftz", "true"),
        ),
        (["-x c++", "-target", "x86_64-linux"], ("-x", "c++", "-target", "x86_64-linux")),
        (["-Wl,-rpath,/a", "/a/b.o", "@rsp"], ("-Wl,-rpath,/a", "/a/b.o", "@rsp")),
    ],
)  # fmt: skip
def test_an_element_is_one_argument_or_several_flags(given, arguments):
    assert jit_flags.words(given) == arguments


def test_search_paths_are_distinguished_from_flags():
    given = ("-Iinc", "-O3", "-I", "/x/../y", "-include", "first.h", "-I=z", "-include-pch", "-I")
    found = jit_flags.parse_flags(given, "/w")
    assert found.search == ("/w/inc", "/y", "/w/z")
    assert found.first == ("/w/first.h",)
    assert found.rest == ("-O3", "-include-pch", "-I")
    assert found.words == ("-include", "w/first.h", "-O3", "-include-pch", "-I")


def test_nvccs_long_options_have_their_path_in_the_next_word_or_their_own():
    given = ("--include-path=inc", "--include-path", "other", "--pre-include=first.h")
    found = jit_flags.parse_flags((*given, "--system-include=/usr/x"), "/w", ["/usr"])
    assert found.search == ("/w/inc", "/w/other")
    assert found.first == ("/w/first.h",)
    assert found.rest == ("--system-include", "/usr/x")


def test_a_linkers_paths_become_absolute():
    found = jit_flags.linker_flags(("-Llib", "-L", "../x", "-lm", "a.o"), "/w")
    assert found == ("-L/w/lib", "-L/x", "-lm", "/w/a.o")


def test_other_search_paths_are_the_users_or_the_machines():
    given = ("-isystem", "inc", "-iquoteq", "-idirafter", "/usr/include/x", "-isystem=/opt/y")
    found = jit_flags.parse_flags(given, "/w", ["/usr"])
    assert found.apart == ("/w/inc", "/w/q", "/opt/y")
    assert found.rest == (
        *("-isystem", "w/inc", "-iquote", "w/q"),
        *("-idirafter", "/usr/include/x", "-isystem", "opt/y"),
    )


def test_a_flag_that_no_shell_could_read_is_named():
    with pytest.raises(UsageError, match="-DX="):
        jit_flags.words(['-DX="'])


@pytest.mark.parametrize("name", ["x.o", "libx.a", "libx.so", "libx.so.1.2", "sub/x.ld"])
def test_a_linkers_files_become_absolute(name):
    assert jit_flags.linker_flags((name, "@args", "-z"), "/w") == (f"/w/{name}", "@args", "-z")


def test_what_a_linker_reads_is_known():
    flags = ("/a/x.o", "-L/l", "-lfoo", "-l:bar.a", "-Wl,--version-script=/a/map,-T,/a/b.ld", "-O2")
    assert set(jit_flags.linked_files(flags)) == {
        *("/a/x.o", "/l/libfoo.so", "/l/libfoo.a", "/l/bar.a", "/a/map", "/a/b.ld")
    }


@pytest.mark.parametrize(("path", "below"), [("/usr/include", True), ("/usrx", False)])
def test_a_directory_below_another_is_recognised(path, below):
    assert jit_flags.is_below(path, ["/usr"]) is below


@pytest.mark.parametrize(
    ("given", "relocatable"),
    [
        ("-rdc=true", True),
        ("-rdc true", True),
        ("--relocatable-device-code=true", True),
        ("--relocatable-device-code true", True),
        ("-dc", True),
        ("--device-c", True),
        ("-dlto", True),
        ("-gencode arch=compute_90,code=lto_90", True),
        ("-rdc=false", False),
        ("-O3 -DRDC=true", False),
        ("", False),
    ],
)
def test_relocatable_device_code_is_known_in_every_spelling(given, relocatable):
    assert jit_flags.is_relocatable(given.split()) is relocatable


def test_optimization_at_the_link_is_asked_for_there():
    given = ("-O3", "-dlto", "-gencode", "arch=compute_90,code=sm_90", "-arch=sm_80")
    compiled, linked = jit_flags.at_device_link(given)
    assert compiled == (
        "-rdc=true",
        "-O3",
        "-gencode",
        "arch=compute_90,code=lto_90",
        "-arch=sm_80",
    )
    assert linked == ("-dlto", "-gencode=arch=compute_90,code=sm_90", "-arch=sm_80")
