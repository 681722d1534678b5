# SPDX-License-Identifier: Apache-2.0

import contextlib
import threading

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.marked_layers import (  # noqa: E402 - skipped without torch
    AddOne,
    Same,
    kernelize_on_cpu,
)

from kernforge import (  # noqa: E402
    register_kernel_mapping,
    use_kernel_mapping,
)


def test_mappings_end_with_their_block_and_hold_in_their_thread_alone(mapped, model):
    scope = use_kernel_mapping({}, inherit_mapping=False)
    for _ in range(2):  # it can be entered again
        with contextlib.suppress(KeyError), scope:
            assert kernelize_on_cpu(model)(0) == 0
            register_kernel_mapping({"Same": {"cpu": AddOne}})
            assert kernelize_on_cpu(model)(0) == 1
            raise KeyError
    assert kernelize_on_cpu(model)(0) == 2
    seen = []
    thread = threading.Thread(target=lambda: seen.append(kernelize_on_cpu(model)(0)))
    thread.start()
    thread.join()
    assert seen == [0]


def test_what_is_registered_outside_of_blocks_holds_in_every_thread():
    try:
        register_kernel_mapping({"Same": {"cpu": AddOne}}, inherit_mapping=False)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(kernelize_on_cpu(Same())(0)))
        thread.start()
        thread.join()
        assert seen == [1]
    finally:
        register_kernel_mapping({}, inherit_mapping=False)
