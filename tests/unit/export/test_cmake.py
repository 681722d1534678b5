# SPDX-License-Identifier: Apache-2.0

from support.manifests import RICH

from kernforge.export import cmake
from kernforge.manifest.document import parse


def test_a_source_is_listed_only_where_its_section_reaches():
    text = cmake.text(parse(RICH, source="build.toml"), "abc", "3.8.0")
    newest, rest = text.split("VERSION_GREATER_EQUAL 12.9)")
    newer, older = rest.split("VERSION_GREATER_EQUAL 12.8)")
    assert '"b.cu"' in newest
    assert '"b.cu"' in newer
    assert '"b.cu"' not in older
    assert "gencode(arch 8.0 9.0a)" in older
    assert "GIT_TAG v3.8.0" in text
    assert "TORCH_VERSION VERSION_GREATER_EQUAL 2.13" in text
    assert '-DQUOTE=\\"a b\\"' in text
    assert 'STREQUAL "ROCM"' not in text
