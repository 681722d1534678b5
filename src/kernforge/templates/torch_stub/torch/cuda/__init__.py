# SPDX-License-Identifier: Apache-2.0
"""A GPU for which is compiled: of the newest architecture that was asked for."""

import types

from torch import _stub

__getattr__ = _stub.missing(__name__)

_ARCHS = [tuple(arch) for arch in _stub.VALUES["archs"]]


def is_available():
    """Whether the torch that is built for has CUDA; this machine needs no GPU."""
    return _stub.VALUES["cuda"] is not None


_is_compiled = is_available


def is_initialized():
    return False


def device_count():
    return 1 if is_available() else 0


def current_device():
    return 0


def get_device_capability(device=None):
    return max(_ARCHS)


def get_device_name(device=None):
    return "a GPU of capability {}.{}".format(*max(_ARCHS))


def get_device_properties(device=None):
    major, minor = max(_ARCHS)
    return types.SimpleNamespace(
        name=get_device_name(),
        major=major,
        minor=minor,
        multi_processor_count=132,
        total_memory=80 << 30,
        warp_size=32,
    )


def get_arch_list():
    return [f"sm_{major}{minor}" for major, minor in sorted(_ARCHS)]


def get_gencode_flags():
    words = (f"compute=compute_{each[3:]},code={each}" for each in get_arch_list())
    return " ".join(f"-gencode {word}" for word in words if is_available())


def is_bf16_supported(including_emulation=True):
    return is_available() and max(_ARCHS) >= (8, 0)
