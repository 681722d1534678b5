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


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "-Iinc -O3 -I /x/../y -include first.h -I=z -include-pch -I",
            {
                "search": ("/w/inc", "/y", "/w/z"),
                "first": ("/w/first.h",),
                "rest": ("-O3", "-include-pch", "-I"),
                "words": ("-include", "w/first.h", "-O3", "-include-pch", "-I"),
            },
        ),
        (
            "--include-path=inc --include-path other --pre-include=a.h --system-include=/usr/x",
            {
                "search": ("/w/inc", "/w/other"),
                "first": ("/w/a.h",),
                "rest": ("--system-include", "/usr/x"),
            },
        ),
        (
            "-isystem inc -iquoteq -idirafter /usr/include/x -isystem=/opt/y",
            {
                "apart": ("/w/inc", "/w/q", "/opt/y"),
                "rest": (
                    *("-isystem", "w/inc", "-iquote", "w/q"),
                    *("-idirafter", "/usr/include/x", "-isystem", "opt/y"),
                ),
            },
        ),
    ],
)
def test_search_paths_and_included_files_are_found_in_every_spelling(given, expected):
    found = jit_flags.parse_flags(given.split(), "/w", ["/usr"])
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("given", "absolute"),
    [
        ("-Llib -L ../x -lm a.o", "-L/w/lib -L/x -lm /w/a.o"),
        ("libx.a libx.so.1.2 sub/x.ld @args -z", "/w/libx.a /w/libx.so.1.2 /w/sub/x.ld @args -z"),
    ],
)
def test_a_linkers_paths_become_absolute(given, absolute):
    assert jit_flags.linker_flags(given.split(), "/w") == tuple(absolute.split())


def test_a_flag_that_no_shell_could_read_is_named():
    with pytest.raises(UsageError, match="-DX="):
        jit_flags.words(['-DX="'])


def test_files_that_a_linker_reads_are_found():
    flags = ("/a/x.o", "-L/l", "-lfoo", "-l:bar.a", "-Wl,--version-script=/a/map,-T,/a/b.ld", "-O2")
    assert set(jit_flags.linked_files(flags)) == {
        *("/a/x.o", "/l/libfoo.so", "/l/libfoo.a", "/l/bar.a", "/a/map", "/a/b.ld")
    }


@pytest.mark.parametrize(
    "given",
    [
        *("-rdc=true", "-rdc true", "--relocatable-device-code=true", "-dc", "--device-c"),
        "--relocatable-device-code true",
    ],
)
def test_relocatable_device_code_is_known_in_every_spelling(given):
    assert jit_flags.is_relocatable(given.split())
    assert not jit_flags.is_relocatable(["-rdc=false", "-O3", "-DRDC=true"])
