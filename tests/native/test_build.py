# SPDX-License-Identifier: Apache-2.0
"""Real builds with real compilers, through the command line as a user types it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from support import clusters, processes, projects
from support.programs import run

import kernforge
from kernforge.artifact.metadata import Metadata
from kernforge.binary import fatbin
from kernforge.source.op_schema import read_operators

pytestmark = pytest.mark.native

CPU = "torch-stable-abi210-cpu-x86_64-linux"
CUDA = "torch-stable-abi210-cu130-x86_64-linux"
HEAVY = """#include <map>
#include <regex>
#include <string>
template <int N> struct S { std::map<std::string, S<N - 1>> inner; std::regex r; };
template <> struct S<0> {};
void* heavy() { return new S<60>(); }
"""


def within(prefix, home, *arguments, expect=0):
    """``kernforge ARGUMENTS`` by a program that gives it another machine."""
    argv = (*prefix, sys.executable, "-m", "kernforge", *arguments)
    return run(argv, expect=expect, KERNFORGE_HOME=home)


@pytest.mark.road
@pytest.mark.parametrize("stable", [True, False], ids=["stable ABI", "full ABI"])
def test_a_project_builds_checks_and_runs(kernforge_cli, tmp_path, stable):
    root = projects.write(tmp_path, stable=stable)
    series = "".join(torch.__version__.split(".")[:2])
    pattern = CPU if stable else f"torch{series}-cxx11-cpu-x86_64-linux"
    done = kernforge_cli("build", root, "--json", "--variant", pattern)
    document = json.loads(done.stdout)
    assert list(document["variants"]) == [pattern]
    assert [f for f in document["findings"] if f["severity"] == "error"] == []
    assert (root / "kernforge.lock").is_file()
    kernel = kernforge.get_local_kernel(root)
    x = torch.arange(7.0)
    assert torch.equal(kernel.times_two(x), 2 * x)


def test_recorded_schemas_are_those_of_torch(kernforge_cli, tmp_path):
    root = projects.write(tmp_path)
    kernforge_cli("build", root)
    metadata = Metadata.from_json((root / "build" / CPU / "metadata.json").read_bytes())
    recorded = metadata.provenance.kernforge["ops"]
    kernforge.get_local_kernel(root)
    known = [
        str(schema)
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith(f"{metadata.id}::")
    ]
    assert recorded == ["times_two(Tensor x) -> Tensor"]
    assert read_operators(recorded) == read_operators(known)


def add_fragment(root, *, stable):
    """Add a second binding, which adds an operator to those of the first."""
    first = projects.STABLE_BINDING if stable else projects.FULL_BINDING
    begin, end = ("STABLE_", "TORCH_BOX(&again)") if stable else ("", "&again")
    tensor = "Tensor" if stable else "at::Tensor"
    binding = (
        first.partition(f"\n{tensor} times_two(")[0]
        + f"""
{tensor} times_two(const {tensor}& x);
static {tensor} again(const {tensor}& x) {{ return times_two(x); }}
{begin}TORCH_LIBRARY_FRAGMENT_EXPAND(TORCH_EXTENSION_NAME, ops) {{
  ops.def("again(Tensor x) -> Tensor");
}}
{begin}TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {{ ops.impl("again", {end}); }}
"""
    )
    (root / "torch-ext" / "more.cpp").write_text(binding)
    text = (root / "build.toml").read_text()
    name = '"torch-ext/torch_binding.cpp"'
    (root / "build.toml").write_text(text.replace(name, f'{name}, "torch-ext/more.cpp"'))


@pytest.mark.parametrize("stable", [True, False], ids=["stable ABI", "full ABI"])
def test_an_edited_source_is_compiled_alone(kernforge_cli, tmp_path, stable):
    root = projects.write(tmp_path / "project", stable=stable)
    add_fragment(root, stable=stable)
    series = "".join(torch.__version__.split(".")[:2])
    pattern = CPU if stable else f"torch{series}-cxx11-cpu-*"
    call = ("build", root, "--variant", pattern, "--json")
    kernforge_cli(*call, "--build-dir", tmp_path / "one")
    never_seen = f"// {time.time_ns()}\n"  # or the store would have it from an earlier run
    (root / "times_two.cpp").write_text(projects.CPP.replace("2 *", "3 *") + never_seen)
    document = json.loads(kernforge_cli(*call, "--build-dir", tmp_path / "two").stdout)
    ran = {one["title"].split()[0] for one in document["actions"]["spent"]}
    assert ran == {"times_two.cpp", "namespace", "link"}
    x = torch.arange(7.0)
    loaded = [kernforge.get_local_kernel(tmp_path / name) for name in ("one", "two")]
    assert [k.times_two(x)[1].item() for k in loaded] == [2, 3]
    with (root / "torch-ext" / "times_two" / "__init__.py").open("a") as package:
        package.write(f"\n\ndef again(x):\n    return ops.again(x)\n\n\n{never_seen.lstrip('/ ')}")
    document = json.loads(kernforge_cli(*call, "--build-dir", tmp_path / "three").stdout)
    assert {one["title"].split()[0] for one in document["actions"]["spent"]} == {
        "namespace",
        "link",
    }
    kernel = kernforge.get_local_kernel(tmp_path / "three")
    assert (kernel.times_two(x)[1].item(), kernel.again(x)[1].item()) == (3, 3)


@pytest.mark.road
def test_cuda_is_built_with_the_locked_compiler(kernforge_cli, tmp_path):
    # A CUDA of the system, first on the path, that would be noticed at once.
    fake = tmp_path / "bin"
    fake.mkdir()
    for name in ("nvcc", "cicc", "ptxas", "fatbinary", "cudafe++"):
        (fake / name).write_text("#!/bin/sh\nexit 77\n")
        (fake / name).chmod(0o755)
    root = projects.write(tmp_path / "project", backends=("cuda",))
    env = {
        "PATH": f"{fake}:{os.environ['PATH']}",
        "CUDA_HOME": str(fake),
        "NVCC_APPEND_FLAGS": "-x",
    }
    kernforge_cli("build", root, env=env)
    metadata = json.loads((root / "build" / CUDA / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cuda", "archs": ["9.0"]}


def test_requested_ptx_is_in_the_file_or_refused(kernforge_cli, tmp_path):
    root = projects.write(tmp_path / "project", backends=("cuda",))
    kernforge_cli("build", root, "--arch", "9.0+PTX")
    (library,) = (root / "build" / CUDA).rglob("*.so")
    found = fatbin.architectures(library.read_bytes())
    assert (found.cubins, found.ptx) == (("9.0",), ("9.0",))
    metadata = Metadata.from_json((root / "build" / CUDA / "metadata.json").read_bytes())
    assert metadata.archs == ("9.0+PTX",)
    kernforge_cli("check", root / "build")
    manifest = root / "build.toml"
    text = manifest.read_text()
    manifest.write_text(text.replace('["9.0"]', '["9.0a"]'))
    refused = kernforge_cli("build", root, "--arch", "9.0+PTX", expect=3)
    assert "--arch 9.0+PTX: no architecture of 9.0a has PTX" in refused.stderr


def test_a_warm_store_needs_no_network(kernforge_cli, kept_home, tmp_path):
    root = projects.write(tmp_path, backends=("cpu", "cuda"))
    kernforge_cli("lock", root)
    kernforge_cli("build", root)
    (root / "times_two.cpp").write_text(projects.CPP + "// edited\n")
    cut = ("unshare", "--map-root-user", "--net")
    if run([*cut, "true"], expect=None).returncode:
        pytest.skip("this machine allows no network namespaces")
    within(cut, kept_home, "build", root, "--locked")


def test_an_unreachable_index_is_reported_with_the_action(kernforge_cli, tmp_path):
    root = projects.write(tmp_path / "project")
    env = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": "/dev/null"}
    env |= {"PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
    done = kernforge_cli("build", root, expect=10, home=tmp_path / "home", env=env)
    assert "the network" in done.stderr
    assert not (root / "kernforge.lock").exists()


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path):
    root = projects.write(tmp_path / "project")
    home = tmp_path / "home"
    home.mkdir()
    small = f'mount -t tmpfs -o size=3m none {home} && exec "$@"'
    prefix = ("unshare", "--map-root-user", "--mount", "sh", "-c", small, "sh")
    if run([*prefix, "true"], expect=None).returncode:
        pytest.skip("this machine allows no mount namespaces")
    done = within(prefix, home, "build", root, expect=11)
    assert "No space left on device" in done.stderr
    assert "KERNFORGE_HOME" in done.stderr
    assert not (root / "build").exists()


def test_a_binding_chosen_by_the_preprocessor_builds(kernforge_cli, tmp_path):
    # As flash-attn2 of kernels-community: one is for the CPU, one for CUDA.
    other = f"#ifndef CPU_KERNEL\n{projects.STABLE_BINDING}#endif\n"
    mine = f"// PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)\n{projects.STABLE_BINDING}"
    root = projects.write(tmp_path, binding=mine)
    (root / "torch-ext" / "other.cpp").write_text(other)
    manifest = (root / "build.toml").read_text()
    one = '"torch-ext/torch_binding.cpp"'
    (root / "build.toml").write_text(manifest.replace(one, f'{one}, "torch-ext/other.cpp"'))
    kernforge_cli("build", root)
    x = torch.arange(7.0)
    assert torch.equal(kernforge.get_local_kernel(root).times_two(x), 2 * x)


def test_a_unit_gets_as_much_of_torchs_headers_as_it_needs(kernforge_cli, tmp_path):
    # A slim header has the version of torch, and lacks a function. Bytes stay as they are written.
    parts = """#include <torch/torch.h>
{code}
TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, ops) {{ ops.def("{name}() -> int", &{name}); }}
"""
    codes = {
        "version": "#if TORCH_VERSION_MAJOR >= 2\nint64_t version() { return 2; }\n#endif\n"
        'static_assert(sizeof("\xe9") == 2);',
        "threads": "int64_t threads() { return at::get_num_threads(); }",
    }
    root = projects.write(tmp_path, stable=False)
    manifest = (root / "build.toml").read_text()
    names = "".join(f'"{name}.cpp", ' for name in codes)
    (root / "build.toml").write_text(manifest.replace("src = [", f"src = [{names}", 1))
    for name, code in codes.items():
        (root / f"{name}.cpp").write_text(parts.format(name=name, code=code), "latin-1")
    series = "".join(torch.__version__.split(".")[:2])
    kernforge_cli("build", root, "--variant", f"torch{series}-cxx11-cpu-*")
    kernel = kernforge.get_local_kernel(root)
    ops = kernel._ops.ops
    assert (ops.version(), ops.threads()) == (2, torch.get_num_threads())


def test_an_edited_header_behind_a_macro_is_no_cache_hit(kernforge_cli, tmp_path):
    machine = tmp_path / "machine"
    machine.mkdir()
    (machine / "of_host.h").write_text('#include "deep.h"\n')
    # One that the host compiler alone opens, and one that only the pass for a device opens.
    named = "#define NAMED(name) <name.h>\n#include NAMED(of_host)\n"
    on_device = (
        "#define NAMED(name) <name.h>\n#ifdef __CUDA_ARCH__\n#include NAMED(of_device)\n#endif\n"
    )
    root = projects.write(
        tmp_path / "project",
        backends=("cpu", "cuda"),
        cpp=named + projects.CPP,
        cu=on_device + projects.CU,
    )
    text = (root / "build.toml").read_text()
    for section, flags in (("cpu", "cxx-flags"), ("cuda", "cuda-flags")):
        line = f'backend = "{section}"\n'
        assert line in text
        text = text.replace(line, f'{line}{flags} = ["-isystem", "{machine}"]\n')
    (root / "build.toml").write_text(text)

    def ran(**headers):
        for name, number in headers.items():
            (machine / f"{name}.h").write_text(f"int {name} = {number};\n")
        graph = kernforge_cli("build", root, "--sandbox", "off", "--dry-run", "--json").stdout
        done = kernforge_cli("build", root, "--sandbox", "off", "--no-check", "--json")
        ran = json.loads(done.stdout)["actions"]["ran"]
        assert sum(not action["cached"] for action in json.loads(graph)["actions"]) == ran
        return ran

    assert ran(deep=1, of_device=1) > 4
    assert ran() == 0
    assert ran(deep=2) == 2  # the unit and its link
    assert ran(of_device=2) == 2
    assert ran() == 0


def test_a_compiler_error_stops_its_own_variant_alone(kernforge_cli, tmp_path):
    root = projects.write(tmp_path, backends=("cpu", "cuda"), cpp="int broken( {\n")
    done = kernforge_cli("build", root, expect=5)
    assert "times_two.cpp:1:" in done.stderr
    assert f"for {CPU}" in done.stderr
    assert (root / "build" / CUDA / "metadata.json").is_file()
    assert not (root / "build" / CPU).exists()
    # The command to repeat it by hand really repeats it.
    line = done.stderr.split("repeat it by hand:\n")[1].splitlines()[0]
    assert "times_two.cpp:1:" in run(("sh", "-c", line), expect=1).stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_an_interrupted_build_leaves_nothing_half_done(kernforge_cli, kept_home, tmp_path, name):
    kernforge_cli("build", projects.write(tmp_path / "other"))
    home = tmp_path / "home"
    (home / "store").mkdir(parents=True)
    (home / "store" / "toolchains").symlink_to(kept_home / "store" / "toolchains")
    # Unlike any other source, so that the compiler really runs.
    root = projects.write(tmp_path / "project", cpp=HEAVY + f"// {name} {time.time_ns()}\n")
    env = {**os.environ, "KERNFORGE_HOME": str(home)}
    chosen = ("build", root, "--variant", CPU)

    def places():
        graph = kernforge_cli(*chosen, "--dry-run", "--json", home=home).stdout
        actions = home / "store" / "actions"
        keys = {one["title"]: one["key"] for one in json.loads(graph)["actions"]}
        return {title: actions / key[:2] / key for title, key in keys.items()}

    compiled = places()["times_two.cpp"]
    options = {"env": env, "stderr": subprocess.PIPE, "text": True}
    argv = [sys.executable, "-m", "kernforge", *map(str, chosen)]
    with processes.start(argv, **options) as process:
        clusters.wait_for(
            lambda: any((home / "store" / "work").glob("*/work/times_two.cpp")), "a compiler"
        )
        time.sleep(0.3)
        process.send_signal(getattr(signal, name))
        process.communicate()
    assert process.returncode == (-9 if name == "SIGKILL" else 130)
    assert not list(root.glob("build/*"))
    assert not list(compiled.parent.glob(f"{compiled.name}*"))
    (root / "times_two.cpp").write_text(projects.CPP)
    there = [place for place in places().values() if place.exists()]
    document = json.loads(kernforge_cli(*chosen, "--json", home=home).stdout)
    assert document["actions"]["ran"] == len(places()) - len(there)
    # Where nothing was left is where the results are.
    assert all((place / "kernforge-made.json").is_file() for place in places().values())
    assert list(root.glob("build/*")) == [root / "build" / CPU]
