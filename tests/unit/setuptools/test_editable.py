# SPDX-License-Identifier: Apache-2.0
"""An editable install copies modules beside the sources."""

import pytest
from setuptools import Distribution, errors

from kernforge.setuptools import BuildExtension, CppExtension


def test_a_missing_package_directory_is_named_before_anything_is_compiled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    extension = CppExtension("cuda_ops.core", ["a.cpp"])
    command = BuildExtension(Distribution({"name": "x", "ext_modules": [extension]}))
    command.inplace = True
    command.ensure_finalized()
    with pytest.raises(errors.CompileError, match="into cuda_ops, which is not there"):
        command.build_extensions()
