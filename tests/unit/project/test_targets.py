# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.artifact.version import Version2
from kernforge.errors import UsageError
from kernforge.manifest import document
from kernforge.project import targets
from kernforge.toolchain.installed import TorchHere
from kernforge.toolchain.lockfile import (
    Lock,
    LockedTree,
)

GENERAL = """
[general]
name = "my-op"
version = 1
edition = 5
license = "Apache-2.0"
backends = [{backends}]
"""
CPU = '[kernel.c]\nbackend = "cpu"\ndepends = []\nsrc = ["c.cpp"]\n'
CUDA = '[kernel.g]\nbackend = "cuda"\ndepends = []\nsrc = ["g.cu"]\n'
RELEASES = {
    Version2(2, 11): (Version2(11, 8), Version2(12, 6), Version2(13, 0)),
    Version2(2, 12): (Version2(12, 6), Version2(13, 0), Version2(13, 2)),
    Version2(2, 13): (Version2(13, 0), Version2(13, 2)),
}


def considered(backends, rest, **given):
    quoted = ", ".join(f'"{b}"' for b in backends)
    parsed = document.parse(GENERAL.format(backends=quoted) + rest)
    return targets.candidates(parsed, cpu="x86_64", releases=RELEASES, **given)


STABLE = '[torch]\nstable-abi = "2.10"\n'


def defaults(found):
    """Names of the variants that are built unasked, without what most of them share."""
    names = [c.name.removesuffix("-x86_64-linux") for c in found if c.default]
    return [name.removeprefix("torch-stable-abi210-") for name in names]


def here(torch, cuda):
    return TorchHere(version=Version2.parse(torch), cuda=Version2.parse(cuda) if cuda else None)


BOTH, FULL = CPU + CUDA, "[torch]\n"
OF_12_7 = '[general.cuda]\nminver = "12.7"\nmaxver = "12.9"\n'
OF_13_1, TO_12_8 = '[general.cuda]\nminver = "13.1"\n', '[general.cuda]\nmaxver = "12.8"\n'
NEWEST = [f"torch212-cxx11-{cuda}" for cuda in ("cu126", "cu130", "cu132")]
NEWEST += ["torch213-cxx11-cu130", "torch213-cxx11-cu132"]
DEFAULTS = [
    # One variant for each kind of GPU; for the two newest torches with the full ABI.
    (STABLE + BOTH, None, ["cpu", "cu126", "cu128", "cu130"]),
    (
        '[tvm-ffi]\nsrc = ["tvm-ffi-ext/b.cpp"]\n' + BOTH,
        None,
        [f"tvm-ffi01-{backend}" for backend in ("cpu", "cu126", "cu128", "cu130")],
    ),
    (
        FULL + BOTH,
        None,
        ["torch212-cxx11-cpu", "torch213-cxx11-cpu", *NEWEST],
    ),
    # For the installed torch.
    (STABLE + CUDA, here("2.11", "12.6"), ["cu126"]),
    (STABLE + CUDA, here("2.11", "12.9"), ["cu128"]),
    (STABLE + CUDA, here("2.11", "13.2"), ["cu130"]),
    (STABLE + CUDA, here("2.11", None), ["cu130"]),
    (FULL + BOTH, here("2.11", "13.0"), ["torch211-cxx11-cpu", "torch211-cxx11-cu130"]),
    (FULL + BOTH, here("2.12", None), ["torch212-cxx11-cpu", "torch212-cxx11-cu130"]),
    (FULL + BOTH, here("2.12", "13.2"), ["torch212-cxx11-cpu", "torch212-cxx11-cu132"]),
    (FULL + BOTH, here("2.12", "12.8"), ["torch212-cxx11-cpu", "torch212-cxx11-cu126"]),
    (FULL + BOTH, here("2.12", "13.1"), ["torch212-cxx11-cpu", "torch212-cxx11-cu130"]),
    # Within the bounds of the manifest.
    ('[torch]\nmaxver = "2.11"\n' + CPU, None, ["torch211-cxx11-cpu"]),
    (OF_12_7 + STABLE + CUDA, None, ["cu128"]),
    (OF_13_1 + STABLE + CUDA, None, ["cu132"]),
    (TO_12_8 + FULL + CUDA, None, ["torch211-cxx11-cu126", "torch212-cxx11-cu126"]),
    # For the newest, where the installed torch has no nvcc, is unknown, or is outside the bounds.
    (FULL + CUDA, here("2.12", "11.8"), NEWEST),
    (FULL + CUDA, here("2.7", "12.6"), NEWEST),
    ('[torch]\nminver = "2.13"\n' + CUDA, here("2.12", None), NEWEST[-2:]),
]


@pytest.mark.parametrize(("rest", "torch_here", "expected"), DEFAULTS)
def test_what_is_built_unasked(rest, torch_here, expected):
    backends = [name for name in ("cpu", "cuda") if f'backend = "{name}"' in rest]
    assert defaults(considered(backends, rest, torch_here=torch_here)) == expected


def test_an_installed_toolkit_adds_its_variants():
    name, cuda = "torch211-cxx11-cu118-x86_64-linux", Version2(11, 8)
    found = considered(["cuda"], "[torch]\n" + CUDA, local_toolkits=[cuda])
    (one,) = [c for c in found if c.name == name]
    assert one.target.cuda == cuda


def test_an_older_target_is_built_with_headers_that_can():
    found = considered(["cpu"], '[torch]\nstable-abi = "2.9"\n' + CPU)
    assert found[0].name == "torch-stable-abi29-cpu-x86_64-linux"
    assert found[0].target.torch == Version2(2, 10)


@pytest.mark.parametrize(
    ("rest", "name", "reason"),
    [
        ('[torch]\nminver = "2.12"\n', "torch211-cxx11-cpu-x86_64-linux", "torch minver 2.12"),
        ('[torch]\nmaxver = "2.12"\n', "torch213-cxx11-cpu-x86_64-linux", "torch maxver 2.12"),
        (
            '[general.cuda]\nminver = "13.1"\n[torch]\n',
            "torch212-cxx11-cu130-x86_64-linux",
            "CUDA minver 13.1",
        ),
        ("[torch]\n", "torch211-cxx11-cu118-x86_64-linux", "no compiler for CUDA 11.8"),
    ],
)
def test_a_variant_is_left_out_with_the_reason(rest, name, reason):
    (found,) = [c for c in considered(["cpu", "cuda"], rest + CPU + CUDA) if c.name == name]
    assert found.target is None
    assert reason in found.reason


def test_patterns_choose_and_keep_the_order():
    found = considered(["cpu", "cuda"], "[torch]\n" + CPU + CUDA)
    chosen = targets.choose(found, ["*-cu132-*", "torch211-*-cpu-*"])
    assert [t.name for t in chosen] == [
        "torch212-cxx11-cu132-x86_64-linux",
        "torch213-cxx11-cu132-x86_64-linux",
        "torch211-cxx11-cpu-x86_64-linux",
    ]


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("torch213-cxx11-cpu-x86_64-linx", "did you mean torch213-cxx11-cpu-x86_64-linux?"),
        ("torch211-cxx11-cu118-x86_64-linux", "left out: the package index"),
        ("*-cu118-*", "-cu118-x86_64-linux is left out: the package index"),
        ("cpu", "'*cpu*'"),
        ("zzz", "kernforge build --list"),
    ],
)
def test_a_pattern_that_names_nothing_gets_a_hint(pattern, hint):
    with pytest.raises(UsageError) as caught:
        targets.choose(considered(["cpu", "cuda"], "[torch]\n" + CPU + CUDA), [pattern])
    assert hint in caught.value.hint


def test_the_real_table_of_releases_is_in_order():
    releases = targets.torch_releases()
    assert list(releases) == sorted(releases)
    assert releases[2, 11] == (Version2(12, 6), Version2(12, 8), Version2(13, 0))
    assert releases[2, 14] == (Version2(12, 6), Version2(13, 0), Version2(13, 2))
    assert releases[2, 15] == (Version2(13, 0), Version2(13, 2))


def lock(torch=(), cuda=(), arm=()):
    trees = [
        *(LockedTree(kind="torch", version=version, release="") for version in torch),
        *(LockedTree(kind="cuda", version=version, release="") for version in cuda),
        *(LockedTree(kind="torch", version=version, cpu="aarch64", release="") for version in arm),
    ]
    return Lock(platform="x86_64-linux", trees={tree.name: tree for tree in trees})


def test_with_a_lock_its_variants_are_the_defaults():
    found = considered(["cpu", "cuda"], "[torch]\n" + CPU + CUDA, torch_here=here("2.13", "13.0"))
    locked = targets.within_lock(found, [], lock(["2.11"], ["13.0"]))
    assert defaults(locked) == ["torch211-cxx11-cpu", "torch211-cxx11-cu130"]
    stable = considered(["cpu", "cuda"], STABLE + CPU + CUDA)
    assert defaults(targets.within_lock(stable, [], lock([], ["12.9"]))) == ["cpu", "cu129"]


def test_with_a_lock_a_pattern_means_locked_variants():
    found = considered(["cpu", "cuda"], "[torch]\n" + CPU + CUDA)
    has = lock(["2.11"], ["13.0"])

    def chosen(*patterns):
        left = targets.within_lock(found, patterns, has)
        return [target.name for target in targets.choose(left, patterns)]

    assert chosen("*-cu1*") == ["torch211-cxx11-cu130-x86_64-linux"]
    assert chosen("*-cpu-*") == ["torch211-cxx11-cpu-x86_64-linux"]
    other = next(c.name for c in found if c.target and not c.name.startswith("torch211-"))
    assert chosen(other) == [other]
    with pytest.raises(UsageError) as caught:
        chosen(f"{other[:-1]}*")
    assert "kernforge.lock does not have its torch or CUDA" in caught.value.hint


def both_processors(backends, rest):
    quoted = ", ".join(f'"{b}"' for b in backends)
    parsed = document.parse(GENERAL.format(backends=quoted) + rest)
    arm = targets.candidates(parsed, cpu="aarch64", releases=RELEASES, cross=True)
    return (*considered(backends, rest), *targets.for_another_cpu(arm, "aarch64"))


def test_another_processor_must_be_named():
    found = both_processors(("cpu",), STABLE + CPU)
    x86, arm = (f"torch-stable-abi210-cpu-{cpu}-linux" for cpu in ("x86_64", "aarch64"))
    assert [t.name for t in targets.choose(found, [])] == [x86]
    assert [t.name for t in targets.choose(found, ["*"])] == [x86]
    assert [t.name for t in targets.choose(found, ["*-aarch64-linux"])] == [arm]
    assert [t.name for t in targets.choose(found, [arm, x86])] == [arm, x86]
    assert [t.name for t in targets.choose(found, ["*-aarch*"])] == [arm]
    assert [t.name for t in targets.choose(found, ["*-cpu-*"])] == [x86]
    (target,) = targets.choose(found, [arm])
    assert (target.cross, target.cross_cpu) == (True, "aarch64")
    assert not any(c.target.cross for c in found if c.target and c.name == x86)


def test_a_pattern_does_not_fall_back_to_another_processor():
    found = targets.within_lock(
        both_processors(("cpu",), "[torch]\n" + CPU), ["*-cpu-*"], lock(arm=["2.12"])
    )
    with pytest.raises(UsageError):
        targets.choose(found, ["*-cpu-*"])


def test_a_lock_does_not_make_another_processor_a_default():
    found = targets.within_lock(both_processors(("cpu",), "[torch]\n" + CPU), [], lock(["2.13"]))
    assert {t.variant.cpu for t in targets.choose(found, [])} == {"x86_64"}
    within = targets.within_lock(
        both_processors(("cpu",), "[torch]\n" + CPU),
        ["*-aarch64-*"],
        lock(["2.13"], arm=["2.12"]),
    )
    assert [str(t.torch) for t in targets.choose(within, ["*-aarch64-*"])] == ["2.12"]


def test_cuda_headers_are_borrowed_for_old_arm_wheels():
    found = both_processors(("cpu", "cuda"), STABLE + CPU + CUDA)
    borrows = {t.name: t.borrows_cuda_headers for t in targets.choose(found, ["*", "*-aarch64-*"])}
    assert {name for name, value in borrows.items() if value} == {
        name for name in borrows if "-cu" in name and "aarch64" in name
    }
    newer = both_processors(("cuda",), "[torch]\n" + CUDA)
    assert not any(t.borrows_cuda_headers for t in targets.choose(newer, ["*-aarch64-*"]))


def test_a_universal_variant_is_listed_once():
    found = both_processors(("cuda",), "[torch-noarch]\n")
    assert [c.name for c in found] == ["torch-cuda"]


def test_an_unknown_language_leaves_its_backend_out():
    rust = '[torch]\n[kernel.scan]\nlanguage = "rust-cpu"\n' + CUDA
    edition_6 = GENERAL.format(backends='"cpu", "cuda"').replace("edition = 5", "edition = 6")
    found = targets.candidates(document.parse(edition_6 + rust), cpu="x86_64", releases=RELEASES)
    (cpu,) = [each for each in found if each.name == "cpu"]
    assert cpu.target is None
    assert cpu.reason == "[kernel.scan] is of language rust-cpu, which kernforge does not compile"
