# SPDX-License-Identifier: Apache-2.0
"""An index serves one wheel under the names of several projects (B4).

A tree in the store is named by the wheel's content and by who made it of that wheel: what was taken
of it as the headers of one library never stands for the headers of another.
"""

import io
import zipfile

import pytest

from kernforge.store.local import Store
from kernforge.system.digest import sha256
from kernforge.toolchain import provision
from kernforge.toolchain.index.remote_zip import LocalWheel
from kernforge.toolchain.lockfile import LockedTree, LockedWheel
from kernforge.toolchain.provision import Toolchains

MEMBERS = {
    "torch/include/ATen/ATen.h": b"torch",
    "nvidia/cublas/include/cublas.h": b"cublas",
    "cutlass_library/source/include/cutlass/cutlass.h": b"cutlass",
    "tvm_ffi/include/tvm/ffi/any.h": b"tvm",
    "x-1.dist-info/METADATA": b"",
}
FILES = {
    "torch": "torch-9.9.0-cp310-cp310-manylinux_2_28_x86_64.whl",
    "library": "nvidia_cublas-13.9.0-py3-none-manylinux_2_28_x86_64.whl",
    "cutlass": "nvidia_cutlass-9.9.0-py3-none-any.whl",
    "tvm": "apache_tvm_ffi-9.9.0-cp310-cp310-manylinux_2_28_x86_64.whl",
}


class Index:
    """Serves the same wheel under every name."""

    def __init__(self):
        import base64  # noqa: PLC0415 - for the RECORD
        import hashlib  # noqa: PLC0415 - as above

        def line(name, data):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            return f"{name},sha256={digest},{len(data)}\n"

        self.record = "".join(line(n, d) for n, d in MEMBERS.items()).encode()
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, data in {**MEMBERS, "x-1.dist-info/RECORD": self.record}.items():
                archive.writestr(name, data)
        self.data = out.getvalue()

    def parts(self, _file, _sha256):
        return LocalWheel(io.BytesIO(self.data))

    def locked(self, name):
        return LockedWheel(file=FILES[name], sha256="0" * 64, record=sha256(self.record))


def made(toolchains, index, name):
    """What a maker made of the wheel: names of headers."""
    kind = {"library": "cuda-libraries", "cutlass": "cutlass_3_6", "tvm": "tvm-ffi"}.get(name, name)
    wheels = (index.locked(name),)
    tree = toolchains.path(LockedTree(kind=kind, release="9.9.0", wheels=wheels))
    return tree, sorted(path.name for path in tree.rglob("*.h"))


@pytest.mark.parametrize("first", FILES)
def test_each_maker_has_trees_of_its_own(tmp_path, first):
    index = Index()
    alone = {
        name: made(Toolchains(Store(tmp_path / f"only-{name}"), index), index, name)[1]
        for name in FILES
    }
    toolchains = Toolchains(Store(tmp_path / "store"), index)
    order = [first, *(name for name in FILES if name != first)]
    trees = {name: made(toolchains, index, name) for name in order}
    assert {name: found for name, (_, found) in trees.items()} == alone
    assert len({tree for tree, _ in trees.values()}) == len(FILES)
    assert alone["torch"] == ["ATen.h"]


def test_keys_of_makers_differ():
    keys = [provision.key(LockedTree(kind=kind, release="")) for kind in ("torch", "tvm-ffi")]
    assert len(set(keys)) == len(keys)


def test_what_is_not_verified_of_a_wheel_does_not_choose_its_tree():
    """A toolkit's wheels are read whole, and a lock may say of their RECORD what it likes."""
    wheels = [
        LockedWheel(file="nvidia_nvvm-13.0-x.whl", sha256=whole * 64, record=record)
        for whole, record in (("a", ""), ("b", "a" * 64))
    ]
    trees = [LockedTree(kind="cuda", release="13.0", wheels=(wheel,)) for wheel in wheels]
    assert len({*map(provision.key, trees)}) == len(trees)
