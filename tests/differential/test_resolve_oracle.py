# SPDX-License-Identifier: Apache-2.0
"""Ours against the hub's own client: names, choices, their order, architectures, documents."""

import itertools
import json
import random
from pathlib import Path

import pytest
from packaging.version import Version

from kernels import _rust as rust, archs, backends, variants
from kernforge.artifact.integrity import digest_tree
from kernforge.artifact.metadata import Metadata
from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.errors import IntegrityError, UsageError
from kernforge.loader.host import Host
from kernforge.loader.resolve import check_archs, resolve

THEIR_BACKEND = {
    "cpu": backends.CPU,
    "cuda": backends.CUDA,
    "metal": backends.Metal,
    "neuron": backends.Neuron,
    "rocm": backends.ROCm,
    "tpu": backends.TPU,
    "xpu": backends.XPU,
    "cann": backends.CANN,
}
BACKENDS = [
    *(Backend(name) for name in ("cpu", "metal", "neuron", "tpu")),
    *(Backend("cuda", Version2(major, minor)) for major in (12, 13) for minor in (0, 2, 8, 10)),
    *(Backend("rocm", Version2(7, minor)) for minor in (1, 2, 10)),
    *(Backend("xpu", version) for version in (Version2(2025, 3), Version2(2026, 0))),
    Backend("cann", Version2(8, 2)),
]
FRAMEWORKS = [
    *(f"torch{digits}" for digits in ("29", "210", "212", "213")),
    *(f"torch{digits}-{tag}" for digits in ("210", "212") for tag in ("cxx11", "cxx98")),
    *(f"torch-stable-abi{digits}" for digits in ("29", "210", "212", "214")),
    "tvm-ffi01",
    "tvm-ffi02",
]
TARGETS = ["x86_64-linux", "aarch64-linux", "aarch64-darwin", "x86_64-windows"]
NOARCH = ["cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu", "npu", "universal", "odd-name"]


def their_version(version):
    return None if version is None else Version(f"{version[0]}.{version[1]}")


def their_backend(backend):
    kind = THEIR_BACKEND[backend.name]
    return kind() if backend.version is None else kind(version=their_version(backend.version))


def test_variant_names_parse_as_in_the_client():
    pieces = [
        *FRAMEWORKS,
        "torch",
        "torch-",
        "torch2",
        "torch205",
        "tvm-ffi1",
        "tvm-ffi",
        "cuda",
        "",
    ]
    tails = [*map(str, BACKENDS), "cu1", "cu0130", "cu", "cuda", "vulkan", ""]
    ends = ["-x86_64-linux", "", "-x", "-x-y-z", "--"]
    accepted = 0
    for parts in itertools.product(pieces, ["-", ""], tails, ends):
        name = "".join(parts)
        try:
            theirs = variants.parse_variant(name).variant_str
        except ValueError:
            theirs = None
        try:
            ours = str(Variant.parse(name))
        except UsageError:
            ours = None
        assert ours == theirs, name
        accepted += ours is not None
    assert accepted > 200


def random_system(rng):
    cpu, _, os = rng.choice(TARGETS).partition("-")
    return Host(
        cpu=cpu,
        os=os,
        backend=rng.choice(BACKENDS),
        torch=rng.choice([None, *(Version2(2, minor) for minor in (9, 10, 12, 13))]),
        cxx11=rng.choice([None, True, False]),
        tvm_ffi=rng.choice([None, Version2(0, 1), Version2(0, 2)]),
        macos=rng.choice([None, Version2(15, 5), Version2(26, 0), Version2(26, 1)]),
        python=Version2(3, 14),
        free_threaded=rng.random() < 0.05,
    )


def random_names(rng, host):
    """Names of which a good part fits the host, so that the order matters."""
    target = [f"{host.cpu}-{host.os}"] * 4 + TARGETS
    backend = [host.backend] * 3 + BACKENDS
    arch = [
        f"{rng.choice(FRAMEWORKS)}-{rng.choice(backend)}-{rng.choice(target)}"
        for _ in range(rng.randrange(16))
    ]
    noarch = [f"torch-{rng.choice(NOARCH)}" for _ in range(rng.randrange(4))]
    names = [name for name in {*arch, *noarch} if str(Variant.parse(name)) == name]
    names.sort()
    rng.shuffle(names)
    return names


def test_variants_rank_as_in_the_client(monkeypatch):
    rng = random.Random(2026)
    fitting = 0
    for _ in range(4000):
        host = random_system(rng)
        names = random_names(rng, host)
        monkeypatch.setattr(
            variants, "_is_unsupported_free_threaded_build", lambda host=host: host.free_threaded
        )
        accepted, trace = variants._resolve_variant_for_system(
            variants=[variants.parse_variant(name) for name in names],
            selected_backend=their_backend(host.backend),
            cpu=host.cpu,
            os=host.os,
            torch_version=their_version(host.torch),
            torch_cxx11_abi=host.cxx11,
            tvm_ffi_version=their_version(host.tvm_ffi),
            macos_version=their_version(host.macos),
        )
        ours = resolve(names, host)
        assert [d.name for d in ours.accepted] == [v.variant_str for v in accepted], (host, names)
        if not host.free_threaded:
            assert [d.name for d in ours.decisions] == [d.variant.variant_str for d in trace]
        fitting += len(accepted)
    assert fitting > 1500


def test_architectures_run_as_in_the_client():
    versions = ["7.5", "8.0", "8.6", "9.0", "10.0", "10.3", "12.1"]
    texts = [f"{v}{s}{p}" for v in versions for s in ("", "a", "f") for p in ("", "+PTX")]
    texts += ["gfx90a", "9", "9.", ".0", "9.0b", "9.0PTX", ""]
    rng = random.Random(7)
    lists = [[text] for text in texts] + [rng.sample(texts, 3) for _ in range(500)]
    capabilities = [tuple(map(int, v.split("."))) for v in versions]
    for listed, capability in itertools.product(lists, capabilities):
        host = Host(cpu="x86_64", os="linux", backend=Backend("cuda"), capability=capability)
        theirs = archs._supports_cuda_capability(listed, capability)
        assert (check_archs("cuda", listed, host) == "") is theirs, (listed, capability)


def test_digests_are_those_of_the_client(tmp_path):
    for path in ["__init__.py", "a.pyc", "B.py", "é.py", "_b.py", "s/metadata.json", "s/c.PYC"]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(path)
    for path in ["metadata.json", "metadata.json.sigstore", "s/__pycache__/x", "__pycache__/y.py"]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(path)
    for name, theirs in [
        ("sha256", rust.DigestAlgorithm.SHA256),
        ("sha512", rust.DigestAlgorithm.SHA512),
    ]:
        expected = rust.Digest.hash_variant(theirs, tmp_path).files
        assert list(digest_tree(tmp_path, algorithm=name).files.items()) == list(expected.items())


COMMIT = "D0610aa58db33b142c86b59598a2a1c730f52996"
STATE = {"commit": COMMIT, "dirty": True}
BUILDER = {"version": "0.17.2"}
VALUES = {
    "name": ["relu", "r", "Relu", "a-b", "a-", 1, None],
    "id": ["_x", "", 1, None],
    "version": [0, 1, -1, 1.0, "1", True, None, 1 << 63, 1 << 64],
    "kernels-minver": ["0.14.0", "0.14", "01.2.3", "0.14.0rc1", None, 5, " 0.14.0"],
    "license": ["MIT", "", None, 1],
    "upstream": [
        *("https://a/b", "HTTPS://a/b", "http://x", "git+ssh://a/b", "git://a", "ssh://g@h/p"),
        *("git@example.org:a/b", "a/b:c", "a:b", "a:/b", ":b", "a:", "/a/b", "ftp://a/b", "", "x"),
        *("https://", "https://a b", None, 5),
    ],
    "python-depends": [[], ["einops"], None, [1], "einops"],
    "kernel-depends": [
        [],
        None,
        [{"repo-id": "a/b", "version": 1}],
        [{"repo-id": "a/b", "revision": "x"}],
        [{"repo-id": "a/b", "revision": "x", "version": 1}],
        [{"repo-id": "a/b"}],
    ],
    "backend": [
        {"type": "cpu", "archs": None},
        {"type": "rocm", "archs": ["gfx90a"], "more": 1},
        {"type": "cuda", "archs": [9]},
        {"type": "npu"},
        {},
        "cuda",
    ],
    "digest": [
        None,
        {"algorithm": "sha512", "files": {"a": "AA=="}},
        {"algorithm": "md5", "files": {}},
        {"algorithm": "sha256"},
        {"algorithm": "sha256", "files": {"a": 1}},
    ],
    "provenance": [
        None,
        {},
        {"kernforge": {}},
        {"kernel-builder": BUILDER},
        {"kernel-builder": BUILDER, "kernforge": {"version": "0.1.0", "inputs": [1]}},
        {"kernel-builder": {**BUILDER, **STATE}, "kernel": STATE},
        {"kernel-builder": {**BUILDER, "sha": COMMIT, "dirty": False}, "kernel": None},
        {"kernel-builder": {**BUILDER, "sha": COMMIT, "commit": COMMIT, "dirty": False}},
        {"kernel-builder": {**BUILDER, "commit": COMMIT}},
        {"kernel-builder": {**BUILDER, "dirty": True}},
        {"kernel-builder": {**BUILDER, "commit": None, "dirty": None}},
        {"kernel-builder": {**BUILDER, "commit": "abc", "dirty": True}},
        {"kernel-builder": BUILDER, "kernel": {"commit": COMMIT}},
        {"kernel-builder": {}},
    ],
    "unknown": [{"x": [1]}],
}
LEAST = {
    "name": "relu",
    "id": "_relu_cuda_x",
    "version": 1,
    "license": "MIT",
    "python-depends": [],
    "backend": {"type": "cuda", "archs": ["9.0", "10.0"]},
}


def documents():
    yield LEAST
    for key in LEAST:
        yield {k: v for k, v in LEAST.items() if k != key}
    for key, values in VALUES.items():
        yield from ({**LEAST, key: value} for value in values)


def facts_of_theirs(data):
    try:
        m = rust.Metadata.from_bytes(data)
    except ValueError:
        return None
    digest = m.digest and (str(m.digest.algorithm).lower(), m.digest.files)
    states = m.provenance and (m.provenance.kernel_builder.git, m.provenance.kernel)
    git = states and [s and (s.commit, s.dirty) for s in states]
    minver = m.kernels_minver and str(m.kernels_minver)
    return (str(m.name), m.id, m.version, m.license, bool(m.upstream), list(m.python_depends)), (
        str(m.backend.backend_type).lower(),
        m.backend.archs,
        digest,
        git,
        minver,
        len(m.kernel_depends),
    )


def facts_of_ours(m):
    digest = m.digest and (m.digest.algorithm, dict(m.digest.files))
    states = m.provenance and (m.provenance.builder, m.provenance.kernel)
    git = states and [s and (s.commit, s.dirty) for s in states]
    return (m.name, m.id, m.version, m.license, bool(m.upstream), list(m.python_depends)), (
        m.backend,
        None if m.archs is None else list(m.archs),
        digest,
        git,
        m.kernels_minver,
        len(m.kernel_depends),
    )


@pytest.mark.parametrize("document", list(documents()), ids=lambda d: json.dumps(d)[-60:])
def test_metadata_parses_as_in_the_client(document):
    data = json.dumps(document).encode()
    theirs = facts_of_theirs(data)
    try:
        ours = Metadata.from_json(data)
    except IntegrityError:
        assert theirs is None
        return
    assert facts_of_ours(ours) == theirs
    # What we write, they read, and we read back the same.
    written = ours.to_json()
    again = Metadata.from_json(written)
    assert facts_of_theirs(written) == facts_of_ours(again)
    assert again.to_json() == written


def test_oracle_is_the_supported_client():
    assert Path(rust.__file__).parent.name == "kernels"
    assert rust.__version__.startswith("0.17.")
