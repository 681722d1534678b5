# SPDX-License-Identifier: Apache-2.0
"""Every operator of kernels.py under all checks; ``test_broken`` says what must come of it."""

import kernels as broken
from kernforge.testing import SHAPES, op_tests

# Torch allocates by itself in these, so that the fault would harm the process that tests.
NOT_HELD = dict.fromkeys(
    ("opcheck", "compile", "gradients", "compiled_gradients"),
    "writes into the allocator's memory",
)


def under_test(op, leave_out=(), **other):
    declared = {"reference": lambda x: x * 2, "inputs": lambda draw, shape: (draw(shape),), **other}
    return op_tests(
        op=op,
        **declared,
        shapes=SHAPES,
        views=("transposed", "every second", "one repeated", "1 elements in", "3 elements in"),
        devices=("cpu",),
        backward=True,
        leave_out=dict(leave_out),
    )


TestHonest = under_test(broken.honest)
TestWriteBehind = under_test(broken.write_behind, NOT_HELD)
TestWriteBefore = under_test(broken.write_before, NOT_HELD)
TestReadBehind = under_test(broken.read_behind)
TestWrongTail = under_test(broken.wrong_tail)
TestIgnoredStride = under_test(broken.ignored_stride)
TestNotDeterministic = under_test(broken.not_deterministic)
TestModifiedInput = under_test(broken.modified_input)
TestWrongNan = under_test(broken.wrong_nan)
TestMissingFake = under_test(broken.missing_fake)
TestWrongFakeStrides = under_test(broken.wrong_fake_strides)
TestWrongFakeShape = under_test(broken.wrong_fake_shape)
TestIncomingStrides = under_test(
    broken.incoming_strides, {"compiled_gradients": "torch moves the gradient itself there"}
)
TestMixedStrides = under_test(
    broken.mixed_strides,
    reference=lambda a, b: a + b,
    inputs=lambda draw, shape: (draw(shape), draw(shape)),
)
TestWrongDtype = under_test(
    broken.wrong_dtype,
    {"opcheck": "the values tell", "gradients": "the values tell"},
    dtypes=("float16",),
)
TestWrongBackward = under_test(broken.wrong_backward)
TestRecompiles = under_test(broken.Recompiles())
TestGraphBreak = under_test(broken.GraphBreak())
