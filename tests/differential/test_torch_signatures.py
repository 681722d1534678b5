# SPDX-License-Identifier: Apache-2.0
"""What torch's extension functions take, ours take too: by the torch that is installed."""

import inspect

import pytest
from torch.utils import cpp_extension

import kernforge
import kernforge.setuptools

# New in a torch that this suite need not run with, and taken all the same.
SINCE = {"load_inline": {"gil_not_used"}}
OURS = {
    "load": kernforge.load,
    "load_inline": kernforge.load_inline,
    "CppExtension": kernforge.setuptools.CppExtension,
    "CUDAExtension": kernforge.setuptools.CUDAExtension,
    "BuildExtension": kernforge.setuptools.BuildExtension,
}


def parameters(function):
    """Names in their order; ``*args`` and ``**kwargs`` are names, too."""
    return [*inspect.signature(function).parameters]


@pytest.mark.parametrize("name", OURS)
def test_no_parameter_of_torch_is_lacking(name):
    theirs, ours = parameters(getattr(cpp_extension, name)), parameters(OURS[name])
    assert [each for each in theirs if each not in ours] == []
    assert ours[: len(theirs)] == theirs, "arguments by position mean the same"
    assert set(ours) - set(theirs) <= SINCE.get(name, set())
