# SPDX-License-Identifier: Apache-2.0
import pytest
from packaging.metadata import Metadata as CoreMetadata
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from kernforge.artifact.metadata import GitState, KernelDepend, Metadata, Provenance
from kernforge.artifact.variant import Variant
from kernforge.errors import CheckError, UsageError
from kernforge.wheel.plan import Library, local_version, needs_label, plan

STABLE = "torch-stable-abi210-cu130-x86_64-linux"
FULL = "torch213-cxx11-cpu-x86_64-linux"
LINUX = "manylinux_2_28_x86_64"


def document(**fields):
    given = {"name": "toy-op", "id": "_toy_op_cpu_1", "version": 1, "license": "apache-2.0"}
    return Metadata(**{**given, "backend": "cuda", **fields})


def planned(variant, *libraries, siblings=(), version="1.2.0", options=None, **fields):
    parsed = Variant.parse(variant)
    return plan(
        parsed,
        document(**fields),
        libraries,
        version=version,
        siblings=[parsed, *map(Variant.parse, siblings)],
        **{"licences": {}, **(options or {})},
    )


def module(**fields):
    return Library(**{"path": "_toy_op.abi3.so", "python": (3, 2), "platform": LINUX, **fields})


OTHER = module(path="lib.so", python=None, platform="manylinux_2_34_x86_64")


@pytest.mark.parametrize(
    ("variant", "libraries", "tag"),
    [
        ("torch-universal", [], "py3-none-any"),
        (STABLE, [module()], f"cp39-abi3-{LINUX}"),
        ("tvm-ffi01-cpu-x86_64-linux", [module(python=None)], f"py3-none-{LINUX}"),
        (
            STABLE,
            [module(path="a.cpython-312-x86_64-linux-gnu.so", outside=("_PyX",))],
            f"cp312-cp312-{LINUX}",
        ),
        (STABLE, [module(), OTHER], "cp39-abi3-manylinux_2_34_x86_64"),
        (STABLE, [OTHER, module(platform="linux_x86_64")], "cp39-abi3-linux_x86_64"),
    ],
)
def test_the_tag_names_the_libraries_needs(variant, libraries, tag):
    wheel = planned(variant, *libraries)
    assert wheel.file == f"toy_op-1.2.0-{tag}.whl"


def test_a_library_beyond_every_tag_is_refused():
    with pytest.raises(CheckError, match="_PyThreadState_Get"):
        planned(STABLE, module(outside=("_PyThreadState_Get",)))


@pytest.mark.parametrize(
    ("variant", "requires"),
    [
        (STABLE, ("torch>=2.10",)),
        (FULL, ("torch==2.13.*",)),
        ("tvm-ffi01-cpu-x86_64-linux", ("apache-tvm-ffi==0.1.*",)),
        ("torch-cuda", ("torch",)),
    ],
)
def test_torch_is_required_in_compatible_versions(variant, requires):
    assert planned(variant).requires == requires


def test_python_depends_are_required_by_package():
    asked = planned(STABLE, python_depends=("tvm-ffi", "nvidia-cutlass-dsl")).requires
    assert asked == ("torch>=2.10", "apache-tvm-ffi", "nvidia-cutlass-dsl")
    assert len(planned("tvm-ffi01-cpu-x86_64-linux", python_depends=("tvm-ffi",)).requires) == 1
    with pytest.raises(CheckError, match="left-pad"):
        planned(STABLE, python_depends=("left-pad",))


@pytest.mark.parametrize(
    ("variant", "label"),
    [
        (STABLE, "torchabi2.10.cu130"),
        ("torch29-cxx98-cu126-x86_64-linux", "torch2.9.cxx98.cu126"),
        ("torch-cuda", "cuda"),
    ],
)
def test_the_local_version_names_interface_and_backend(variant, label):
    assert local_version(Variant.parse(variant)) == label
    wheel = planned(variant, siblings=["torch29-cpu-x86_64-linux", "torch-npu"])
    assert wheel.version == str(Version(f"1.2.0+{label}"))
    name, version, _, _ = parse_wheel_filename(wheel.file)
    assert (name, str(version)) == ("toy-op", wheel.version)


@pytest.mark.parametrize(
    ("variants", "needed"),
    [
        ([STABLE], False),
        ([STABLE, STABLE.replace("x86_64", "aarch64")], False),
        ([STABLE, STABLE.replace("cu130", "cpu")], True),
        (["torch-cuda", "torch-rocm"], True),
        ([STABLE, "torch-cpu"], True),
    ],
)
def test_a_local_version_is_used_only_where_tags_are_alike(variants, needed):
    assert needs_label([Variant.parse(name) for name in variants]) == needed


def test_installers_prefer_the_stable_abi():
    labels = [f"torch2{minor}-cxx11-cu130-x86_64-linux" for minor in (9, 10, 13)] + [STABLE]
    versions = [Version(f"1+{local_version(Variant.parse(name))}") for name in labels]
    assert versions == sorted(versions)


def test_an_index_accepts_the_metadata():
    provenance = Provenance(
        builder_version="kernforge-9", kernel=GitState(commit="a" * 40, dirty=True)
    )
    wheel = planned(
        STABLE,
        options={
            "card": "---\ntags: x\n---\n# Toy\n",
            "licences": {"LICENSE": b"text"},
            "name": "acme-toy",
        },
        source="https://example.org/toy",
        provenance=provenance,
    )
    found = CoreMetadata.from_email(wheel.metadata, validate=True)
    assert (found.name, found.license_expression) == ("acme-toy", "Apache-2.0")
    assert found.license_files == ["LICENSE"]
    assert found.description.startswith("# Toy\n")
    assert found.project_urls["Source commit"] == f"git+https://example.org/toy@{'a' * 40}"
    assert wheel.file.startswith("acme_toy-1.2.0-")
    assert wheel.module == "toy_op"


def test_a_licence_cannot_inject_a_header():
    text = planned(STABLE, license="mine\nRequires-Dist: evil").metadata
    found = CoreMetadata.from_email(text, validate=True)
    assert found.license == "mine Requires-Dist: evil"
    assert [str(one) for one in found.requires_dist] == ["torch>=2.10"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"version": "one"}, "version"),
        ({"version": "../1"}, "version"),
        ({"options": {"name": "../toy"}}, "name"),
        ({"kernel_depends": (KernelDepend(repo_id="owner/other", version=1),)}, "owner/other"),
    ],
)
def test_an_impossible_wheel_is_refused(fields, words):
    with pytest.raises(UsageError, match=words):
        planned(STABLE, **fields)
