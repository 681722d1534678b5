# SPDX-License-Identifier: Apache-2.0
"""The graph of actions: what it shares, what moves its keys and what does not."""

import hashlib
from dataclasses import replace

import pytest
from support.locks import table, tree

from kernforge.artifact.gpu import Arch
from kernforge.artifact.version import Version2
from kernforge.builder import flags, graph, planner, workspace
from kernforge.errors import ManifestError, ToolchainError
from kernforge.manifest import document
from kernforge.project import targets, units
from kernforge.toolchain.lockfile import (
    Lock,
    LockedCompiler,
    LockedWheel,
)

MANIFEST = """
[general]
name = "my-op"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]
[torch]
src = ["torch-ext/torch_binding.cpp"]
{abi}
[kernel.c]
backend = "cpu"
depends = []
src = ["op.cpp", "op.h"]
cxx-flags = ["-DONLY_HERE"]
[kernel.g]
backend = "cuda"
depends = []
src = ["op.cu", "op.h"]
cuda-capabilities = ["8.0", "9.0a"]
cuda-flags = ["--use_fast_math"]
"""
FILES = {
    "torch-ext/torch_binding.cpp": '#include <torch/library.h>\n#include "registration.h"\n'
    '#include "../op.h"\nTORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}\n',
    "torch-ext/my_op/__init__.py": "from ._ops import ops\n",
    "torch-ext/my_op/py.typed": "",
    "torch-ext/my_op/__pycache__/x.pyc": "",
    "op.h": "#pragma once\n",
    "op.cpp": '#include "op.h"\n',
    "op.cu": '#include "op.h"\n',
    "README.md": "text",
}
RELEASES = {
    Version2(2, 11): (Version2(13, 0),),
    Version2(2, 12): (Version2(13, 0), Version2(13, 2)),
    Version2(2, 13): (Version2(13, 0), Version2(13, 2)),
}


def wheel(name):
    digest = hashlib.sha256(name.encode()).hexdigest()
    return LockedWheel(file=f"{name}-1-py3-none-any.whl", sha256=digest, record=digest)


LOCK = Lock(
    platform="x86_64-linux",
    compilers={"cxx": LockedCompiler(identity="g++ 12", target="x86_64-linux-gnu")},
    trees=table(
        *(tree("cuda", v, wheel(f"nvcc{v}")) for v in ("13.0", "13.2")),
        *(tree("torch", v, wheel(f"torch{v}")) for v in ("2.10", "2.11", "2.12", "2.13")),
    ),
)


def make(
    patterns=("*-cpu-*", "*-cu13[02]*"),
    files=None,
    abi="",
    lock=LOCK,
    *,
    manifest_text=MANIFEST,
    only=(),
    bundled="// bundled\n",
    headers=None,
    cpu="x86_64",
):
    files = FILES | (files or {})
    parsed = document.parse(manifest_text.format(abi=abi))
    sources = units.Sources(
        manifest=parsed,
        digests={path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()},
        texts={p: t for p, t in files.items() if p.endswith((".cpp", ".cu", ".h"))},
        bundled={"torch-ext/registration.h": bundled, **(headers or {})},
    )
    found = targets.candidates(parsed, cpu=cpu, releases=RELEASES, cross=cpu != "x86_64")
    chosen = tuple(targets.choose(found, patterns))
    return planner.make(sources, chosen, lock, only=only)


def test_a_build_for_the_cpu_names_the_cuda_sources_that_it_leaves_out():
    parsed = document.parse(MANIFEST.format(abi=""))
    sources = units.Sources(manifest=parsed, digests={}, texts=FILES, bundled={})
    found = targets.candidates(parsed, cpu="x86_64", releases=RELEASES)
    cpu, both = (targets.choose(found, p) for p in (["*-cpu-*"], ["*-cpu-*", "*-cu130-*"]))
    (note,) = workspace.toolchain_notes(sources, cpu, LOCK)
    assert note.startswith("op.cu is not compiled, since this is a build for the CPU")
    assert not list(workspace.toolchain_notes(sources, both, LOCK))


def with_python(headers):
    return LOCK.having(tree("python", digest=headers))


def titled(made, start):
    return [action for action in made.actions if action.title.startswith(start)]


STABLE = 'stable-abi = "2.10"'
BINDING = "torch-ext/torch_binding.cpp"


@pytest.mark.parametrize(
    ("patterns", "abi", "source", "uses", "flag"),
    [
        pytest.param(["*-cu13*"], "", "op.cu", [3, 2], "-std=c++20", id="CUDA, per toolkit"),
        pytest.param(["*-cpu-*"], "", "op.cpp", [3], "-std=gnu++20", id="C++, for all torches"),
        pytest.param(
            ["*-cpu-*"], 'maxver = "2.11"', "op.cpp", [1], "-std=gnu++17", id="C++17 torches alone"
        ),
        pytest.param(["*-cpu-*"], "", BINDING, [1, 1, 1], "-DCPU_KERNEL", id="binding, per torch"),
        pytest.param(
            ["*-cpu-*"],
            STABLE,
            BINDING,
            [1],
            "-DTORCH_TARGET_VERSION=0x020a000000000000",
            id="stable binding, once",
        ),
    ],
)
def test_targets_share_compilations(patterns, abi, source, uses, flag):
    found = [action for action in make(patterns, abi=abi).actions if action.source == source]
    assert [len(action.variants) for action in found] == uses
    assert all(flag in action.argv for action in found)
    if source != BINDING:
        assert not any("torch" in part for action in found for part in action.argv)


def test_flags_reach_the_units_that_they_are_for():
    made = make(["torch213-*-cpu-*", "torch213-*-cu130-*"])
    (cpp,), (cu,) = titled(made, "op.cpp"), titled(made, "op.cu")
    assert {"-DONLY_HERE", "-DCPU_KERNEL"} <= {*cpp.argv}
    assert {"--use_fast_math", "arch=compute_90a,code=sm_90a", "--expt-extended-lambda"} <= {
        *cu.argv
    }
    assert "-DONLY_HERE" not in cu.argv
    assert (cu.kind, cu.archs, cu.trees) == ("cuda", ("8.0", "9.0a"), ("cuda-13.0", "cxx"))


def keys(made, start):
    return {action.key for action in titled(made, start)}


@pytest.mark.parametrize(
    ("edit", "moved", "kept"),
    [
        ({"op.cu": '#include "op.h"\n// edited'}, ["op.cu", "torch-ext", "link"], ["op.cpp"]),
        ({"op.h": "// edited"}, ["op.cu", "op.cpp", "torch-ext"], ["stub"]),
        ({"torch-ext/my_op/__init__.py": "# edited"}, ["torch-ext", "link"], ["op.cu", "op.cpp"]),
        ({"README.md": "edited"}, [], ["op.cu", "op.cpp", "torch-ext", "link"]),
        ({"unused.h": "new"}, [], ["op.cu", "op.cpp", "torch-ext", "link"]),
    ],
)
def test_an_edit_moves_the_keys_of_its_readers_alone(edit, moved, kept):
    before, after = make(), make(files=edit)
    for start in moved:
        assert not keys(before, start) & keys(after, start), start
    for start in kept:
        assert keys(before, start) == keys(after, start), start


def test_another_torch_moves_the_keys_of_its_readers():
    newer = LOCK.having(tree("torch", "2.13", wheel("torch2.13.1"), release="2.13.1"))
    before, after = make(["torch213-*-cpu-*"]), make(["torch213-*-cpu-*"], lock=newer)
    assert not keys(before, "torch-ext") & keys(after, "torch-ext")
    assert keys(before, "op.cpp") == keys(after, "op.cpp")


def test_another_host_compiler_moves_every_key():
    other = LockedCompiler(identity="g++ 13", target="x86_64-linux-gnu")
    before, after = make(), make(lock=replace(LOCK, compilers={"cxx": other}))
    assert not {a.key for a in before.actions} & {a.key for a in after.actions}


@pytest.mark.parametrize("own", [{}, {"torch-ext/registration.h": "// own\n"}])
def test_the_projects_registration_header_replaces_the_bundled_one(own):
    made = make(["torch213-*-cpu-*"], files=own)
    (binding,) = titled(made, "torch-ext")
    (header,) = [i for i in binding.inputs if i.path == "torch-ext/registration.h"]
    assert (header.digest in made.texts) != bool(own)


def test_a_bundled_header_is_in_the_keys_of_its_readers():
    first = {"csrc/kernforge/pdl.cuh": "// first\n"}
    assert make(headers=first).actions == make().actions
    files = {"op.cu": '#include "kernforge/pdl.cuh"\n'}
    before = make(files=files, headers=first)
    after = make(files=files, headers={"csrc/kernforge/pdl.cuh": "// second\n"})
    unit = titled(before, "op.cu, CUDA 13.0")[0]
    assert "-Icsrc" in unit.argv
    (header,) = [i for i in unit.inputs if i.path == "csrc/kernforge/pdl.cuh"]
    assert header.digest in before.texts
    assert keys(before, "op.cpp") == keys(after, "op.cpp")
    assert not keys(before, "op.cu") & keys(after, "op.cu")
    assert before.sources_id != after.sources_id


def test_a_copy_of_a_bundled_header_makes_the_same_build():
    files, headers = {"op.cu": '#include "kernforge/a.h"\n'}, {"csrc/kernforge/a.h": "// a\n"}
    before = make(files=files, headers=headers)
    copied = make(files={**files, **headers}, headers=headers)
    assert copied.sources_id == before.sources_id
    assert keys(copied, "op.cu") == keys(before, "op.cu")
    # So does the copy where kernforge has another.
    later = make(files={**files, **headers}, headers={"csrc/kernforge/a.h": "// b\n"})
    assert later.sources_id == before.sources_id


def test_no_argv_holds_a_path_of_a_machine():
    seen = set()
    for action in make().actions:
        assert {part for part in action.argv if part.startswith("/")} <= {flags.SHELL}
        assert action.needs <= seen, f"{action.title} comes before what it needs"
        seen.add(action.key)


def test_the_actions_of_a_variant_have_one_order():
    def order(patterns, name):
        made = make(patterns)
        (artifact,) = (a for a in made.artifacts if a.target.name == name)
        found = graph.behind(made, artifact.extension)
        assert [a.key for a in found if name not in a.variants] == []
        return [a.key for a in found]

    everything = ("*-cpu-*", "torch213-*-cu130-*")
    for name in (one.target.name for one in make(everything).artifacts):
        alone = order((name,), name)
        assert order(everything, name) == order(everything[::-1], name) == alone
        assert {a.key for a in make((name,)).actions} == set(alone)


def test_only_units_that_include_cutlass_depend_on_it():
    text = MANIFEST.replace(
        'backend = "cuda"\ndepends = []', 'backend = "cuda"\ndepends = ["cutlass_3_6"]'
    )
    with_cutlass = LOCK.having(tree("cutlass_3_6", wheel=wheel("nvidia_cutlass")))
    files = {"op.cu": "#include <cutlass/cutlass.h>\n"}
    made = make(["torch213-*"], files=files, manifest_text=text, lock=with_cutlass)
    assert [a.title for a in made.actions if "cutlass_3_6" in a.trees] == [
        "op.cu, CUDA 13.0",
        "op.cu, CUDA 13.2",
    ]
    with pytest.raises(ToolchainError, match="no cutlass_3_6"):
        make(["torch213-*"], files=files, manifest_text=text)


def test_a_section_that_serves_no_wanted_gpu_stays_whole():
    extra = (
        'cuda-flags = []\n[kernel.h]\nbackend = "cuda"\ndepends = []\nsrc = ["new.cu"]\n'
        'cuda-capabilities = ["10.0a"]\n'
    )
    text = MANIFEST.replace('cuda-flags = ["--use_fast_math"]', extra)
    made = make(
        ["torch213-*-cu130-*"],
        files={"new.cu": ""},
        manifest_text=text,
        only=(Arch.parse("9.0"),),
    )
    assert made.artifacts[0].archs == ("10.0a", "9.0a")
    with pytest.raises(ManifestError, match="serves a GPU"):
        make(["torch213-*-cu130-*"], only=(Arch.parse("12.0"),))


def test_python_headers_are_in_the_keys_of_their_readers():
    binding = {"torch-ext/torch_binding.cpp": "#include <torch/extension.h>\n"}
    keys = set()
    for headers in ("a" * 64, "b" * 64):
        (action,) = titled(
            make(["torch213-*-cpu-*"], binding, lock=with_python(headers)),
            "torch-ext/torch_binding.cpp",
        )
        assert "python" in action.trees
        keys.add(action.key)
    assert len(keys) == 2
    with pytest.raises(ToolchainError, match="headers of Python"):
        make(["torch213-*-cpu-*"], binding)


def test_registration_alone_needs_no_python_headers():
    bundled = "#if __has_include(<Python.h>)\n#include <Python.h>\n#endif\n"
    made = make(["*-cpu-*"], abi=STABLE, bundled=bundled)
    assert not any("python" in action.trees for action in made.actions)
    own = {"torch-ext/registration.h": bundled}  # one of the project's own may mean it
    made = make(["*-cpu-*"], own, abi=STABLE, lock=with_python("a" * 64))
    assert any("python" in action.trees for action in made.actions)


def crossing(patterns, abi=""):
    arm = [tree("torch", v, wheel(f"arm{v}"), cpu="aarch64") for v in ("2.10", "2.13")]
    arm.append(tree("cudart", "13.0", wheel("arm_runtime"), cpu="aarch64"))
    compiler = LockedCompiler(identity="aarch64 g++ 12", target="aarch64-linux-gnu")
    lock = replace(LOCK.having(*arm), compilers={**LOCK.compilers, "aarch64-cxx": compiler})
    return make(patterns, abi=abi, lock=lock, cpu="aarch64")


def test_another_processor_has_its_own_compiler_headers_and_runtime():
    made = crossing(["*-cu130-*"], abi=STABLE)
    assert "cxx" not in made.trees
    (device,) = titled(made, "op.cu")
    assert device.argv[0] == "%{cuda-13.0}/bin/nvcc"
    assert "-ccbin=%{aarch64-cxx}" in device.argv
    (linked,) = titled(made, "link")
    assert "%{aarch64-cudart-13.0}/lib/libcudart_static.a" in linked.argv
    assert not [part for part in linked.argv if "cuda-13.0}/lib64" in part]


def test_borrowed_cuda_headers_are_searched_last():
    made = crossing(["*-cu130-*"], abi=STABLE)
    (binding,) = titled(made, "torch-ext/torch_binding.cpp")
    own, borrowed = "%{aarch64-torch-2.10}/include", "%{torch-2.10}/include"
    assert binding.argv.index(own) < binding.argv.index(borrowed)
    made = crossing(["torch213-*-cpu-*"])
    assert "torch-2.13" not in made.trees
    assert "aarch64-torch-2.13" in made.trees
