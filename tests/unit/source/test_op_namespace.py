# SPDX-License-Identifier: Apache-2.0
"""Who takes the op namespace at link time, and who must be compiled with it."""

import pytest

from kernforge.source.op_namespace import together, use

NAME = "TORCH_EXTENSION_NAME"
STABLE = f"STABLE_TORCH_LIBRARY_EXPAND({NAME}, ops) {{}}\n"
FULL = f"TORCH_LIBRARY_EXPAND( {NAME} , ops) {{}}\nTORCH_LIBRARY_IMPL_EXPAND({NAME}, CPU, m) {{}}\n"
MODULE = f"REGISTER_EXTENSION({NAME})\n"
COMPILED, LINKED, OWN, JOINED = "compiled", "linked", "module", "joined"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("int x;", "none", id="no use"),
        pytest.param(STABLE + MODULE, LINKED, id="stable"),
        pytest.param(FULL + MODULE, LINKED, id="full"),
        pytest.param(STABLE, JOINED, id="another unit is the module"),
        pytest.param(f"TORCH_LIBRARY_FRAGMENT_EXPAND({NAME}, m) {{}}", JOINED, id="more operators"),
        pytest.param(f"TORCH_LIBRARY_FRAGMENT({NAME}, m) {{}}", COMPILED, id="by torch's own"),
        pytest.param(STABLE + MODULE + f"auto s = STRINGIFY({NAME});", OWN, id="as text"),
        pytest.param(STABLE + MODULE + f"#define NS {NAME}", OWN, id="by another name"),
        pytest.param(f"TORCH_LIBRARY({NAME}, m) {{}}" + MODULE, OWN, id="torch's own macro"),
        pytest.param(STABLE + MODULE + "TORCH_LIBRARY_EXPAND(mine, m) {}", OWN, id="own name"),
        pytest.param("#define REGISTER_EXTENSION(NAME)\n" + STABLE + MODULE, OWN, id="own macro"),
        pytest.param("TVM_FFI_EXTENSION_NAME", COMPILED, id="tvm-ffi"),
    ],
)
def test_how_a_source_names_it(text, expected):
    assert use([text], bundled=True, torch=(2, 13)) == expected
    if expected == LINKED:
        assert use([text], bundled=False, torch=(2, 13)) == OWN
        assert use([text], bundled=True, torch=None) == OWN


def test_torch_before_its_stable_classes_had_a_namespace():
    assert use([STABLE + MODULE], bundled=True, torch=(2, 9)) == OWN
    assert use([FULL + MODULE], bundled=True, torch=(2, 8)) == LINKED


def test_one_unit_with_a_module_of_its_own_has_all_compiled_with_the_name():
    nothing = "none"
    assert together([LINKED, OWN, nothing, COMPILED]) == [COMPILED, OWN, nothing, COMPILED]
    assert together([LINKED, COMPILED, nothing, JOINED]) == [LINKED, COMPILED, nothing, LINKED]
    assert together([JOINED, nothing]) == [COMPILED, nothing]
