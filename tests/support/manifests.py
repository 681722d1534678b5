# SPDX-License-Identifier: Apache-2.0
"""Texts of build.toml that tests of several packages read."""

# Three backends, limits of versions, flags, a library and sections that overlap.
RICH = """[general]
name = "my-kernel"
version = 3
edition = 5
license = "MIT"
backends = ["cuda", "cpu", "rocm"]
python-depends = ["einops"]

[general.cuda]
minver = "12.6"
python-depends = ["nvidia-cutlass-dsl"]

[torch]
src = ["torch-ext/binding.cpp"]
minver = "2.9"
maxver = "2.12"
cxx-flags = ["-DQUOTE=\\"a b\\""]

[kernel.old]
backend = "cuda"
depends = ["cutlass_3_8"]
src = ["a.cu"]
cuda-capabilities = ["8.0", "9.0a"]
include = ["inc"]

[kernel.new]
backend = "cuda"
depends = []
src = ["b.cu"]
cuda-minver = "12.9"

[kernel.cpu]
backend = "cpu"
depends = []
src = ["c.c"]
"""
# A backend that builds here, and one that does not.
CPU_AND_METAL = """
[general]
name = "my-op"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "metal"]
[torch]
stable-abi = "2.10"
[kernel.cpu]
backend = "cpu"
depends = []
src = ["op.cpp"]
[kernel.metal]
backend = "metal"
depends = []
src = ["op.mm"]
"""
