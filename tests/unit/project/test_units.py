# SPDX-License-Identifier: Apache-2.0
"""Which sources a target compiles, and with whose flags."""

from dataclasses import replace

import pytest

from kernforge.artifact.version import Version2
from kernforge.manifest import document
from kernforge.project.units import Sources

GENERAL = """
[general]
name = "my-op"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]
[torch]
src = ["torch-ext/binding.cpp", "torch-ext/binding.h"]
include = ["torch-ext"]
cxx-flags = ["-DBINDING"]
"""
SECTION = """
[kernel.{name}]
backend = "cuda"
depends = [{depends}]
src = [{src}]
{rest}
"""


def parse(*sections):
    return document.parse(GENERAL + "".join(sections))


def section(name, src, rest="", depends=""):
    quoted = ", ".join(f'"{s}"' for s in src)
    return SECTION.format(name=name, src=quoted, rest=rest, depends=depends)


CUDA = Version2(13, 0)


def sources(parsed, files=(), bundled=()):
    texts = dict(files)
    digests = dict.fromkeys(texts, "0")
    return Sources(manifest=parsed, digests=digests, texts=texts, bundled=dict(bundled))


def find(parsed, path, cuda=CUDA, **files):
    (found,) = [u for u in sources(parsed, **files).units("cuda", cuda) if u.path == path]
    return found


def test_headers_are_not_units_and_the_framework_comes_first():
    found = sources(parse(section("a", ["a.cu", "a.cuh"]))).units("cuda", Version2(13, 0))
    assert [u.path for u in found] == ["torch-ext/binding.cpp", "a.cu"]
    assert found[0].cxx_flags == ("-DBINDING",)


def test_sections_that_share_a_source_share_a_unit():
    parsed = parse(
        section(
            "a",
            ["both.cu"],
            'include = ["x"]\ncuda-flags = ["-DA"]\ncuda-capabilities = ["8.0"]',
        ),
        section(
            "b",
            ["./both.cu", "both.cu"],
            'include = ["y"]\ncuda-flags = ["-DB"]\ncuda-capabilities = ["9.0a"]',
        ),
        section("c", ["both.cu"]),
    )
    found = find(parsed, "both.cu")
    assert found.include == ("y",)
    assert found.cuda_flags == ("-DA", "-DB")
    assert [str(a) for a in found.archs][:3] == ["7.5", "8.0", "8.6"]


def test_a_section_for_a_newer_toolkit_is_left_out():
    parsed = parse(section("a", ["a.cu"], 'cuda-minver = "13.2"'), section("b", ["b.cu"]))
    assert [u.path for u in sources(parsed).units("cuda", Version2(13, 0))][1:] == ["b.cu"]
    assert [u.path for u in sources(parsed).units("cuda", Version2(13, 2))][1:] == ["a.cu", "b.cu"]


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [(Version2(12, 6), ("-DX",)), (Version2(12, 8), ("-static-global-template-stub=false", "-DX"))],
)
def test_a_flag_unknown_to_old_toolkits_is_left_out(cuda, expected):
    rest = 'cuda-flags = ["-static-global-template-stub=false", "-DX"]'
    assert find(parse(section("a", ["a.cu"], rest)), "a.cu", cuda).cuda_flags == expected


def test_csrc_and_directories_in_flags_are_searched():
    files = {
        "a.cu": '#include <in_csrc.h>\n#include "in_flag.h"\n',
        "csrc/in_csrc.h": "",
        "inc/in_flag.h": "",
        "first.h": '#include "second.h"\n',
        "second.h": "",
    }
    rest = 'cuda-flags = ["-Iinc", "-include", "first.h", "-I", "/elsewhere"]'
    parsed = parse(section("a", ["a.cu"], rest))
    found = find(parsed, "a.cu", files=files).closure
    assert found.files == tuple(sorted(files))
    assert found.foreign == ()


def test_a_bundled_header_lies_where_kernel_builder_puts_it():
    files = {"sub/a.cpp": '#include "../torch-ext/registration.h"\n'}
    parsed = parse(section("a", ["sub/a.cpp"]))
    bundled = {"torch-ext/registration.h": "// bundled"}
    found = find(parsed, "sub/a.cpp", files=files, bundled=bundled).closure
    assert found.files == ("sub/a.cpp", "torch-ext/registration.h")


def test_bundled_headers_are_those_that_a_unit_may_read():
    files = {
        "a.cu": '#include "kernforge/one.cuh"\n',
        "torch-ext/b.cpp": '#include "registration.h"\n',
    }
    bundled = {
        "torch-ext/registration.h": "",
        "csrc/kernforge/one.cuh": '#include "kernforge/two.h"\n#include <torch/library.h>\n',
        "csrc/kernforge/two.h": "",
        "csrc/kernforge/three.h": "",
    }
    parsed = parse(section("a", ["a.cu", "torch-ext/b.cpp"]))
    found = sources(parsed, files, bundled)
    read = {path: bundled[path] for path in ("csrc/kernforge/one.cuh", "csrc/kernforge/two.h")}
    assert found.bundled_headers == read
    assert find(parsed, "a.cu", files=files, bundled=bundled).closure.reaches_torch
    own = replace(found, digests={**found.digests, "csrc/kernforge/two.h": "another"})
    assert [*own.bundled_headers] == ["csrc/kernforge/one.cuh"]
