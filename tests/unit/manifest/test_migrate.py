# SPDX-License-Identifier: Apache-2.0
"""Editions 2 to 4 are recognised and noted; a rewrite leaves all other bytes."""

from pathlib import Path

import pytest

from kernforge.errors import ManifestError
from kernforge.manifest.document import edition_of, parse
from kernforge.manifest.editions import Edition
from kernforge.manifest.migrate import migrate, migrate_file
from kernforge.manifest.model import TorchNoarch

V4 = """\
# A comment.
[general] # another
name    =  "ab"
version = 7  # the seventh
license = 'MIT'
backends = [
  "cuda", # here
]

[general.hub]
repo-id = "o/ab"
branch = "dev"  # until it is a version

[torch]
stable-abi = "2.11"
"""
V3 = '[general]\nname = "ab"\nlicense = "MIT"\nbackends = ["cuda"]\n'


def test_edition_4_gains_one_line():
    result = migrate(V4)
    old, new = V4.splitlines(), result.splitlines()
    assert new == [*old[:8], "edition = 5", *old[8:]]
    assert parse(result).framework == parse(V4).framework
    assert (parse(V4).general.hub.branch, parse(result).general.hub.branch) == ("dev", "dev")


def test_edition_3_gains_its_defaults():
    result = migrate(V3)
    assert result == (
        '[general]\nname = "ab"\nlicense = "MIT"\nbackends = ["cuda"]\n'
        "version = 1\nedition = 5\n\n[torch-noarch]\n"
    )
    manifest = parse(result)
    assert isinstance(manifest.framework, TorchNoarch)
    assert manifest.general.version == 1


DOTTED = """\
general.name = "ab"
general.version = 1
general.license = "MIT"
general.backends = []

[torch] # kept
"""
INLINE = """\
general = { name = "ab", version = 1, license = "MIT", backends = [] }
[torch] # kept
"""
GENERAL_LAST = """\
[torch]
[general.hub]
branch = "x"
[general]
name = "ab"
version = 1
license = "MIT"
backends = []
"""


@pytest.mark.parametrize(
    "text",
    [
        DOTTED,
        INLINE,
        GENERAL_LAST,
        V4.replace("\n", "\r\n"),
        "\ufeff" + V4,
        V4.replace("# A comment.", "# A line\u2028separator and a \x85."),
    ],
    ids=["dotted", "inline", "general last", "crlf", "byte order mark", "odd line ends"],
)
def test_every_way_to_write_the_general_table_migrates(text):
    result = migrate(text)
    assert edition_of(result) == Edition.V5
    assert parse(result).general.name == parse(text).general.name
    assert ("\r\n" in text) == ("\r\n" in result)
    assert "\r" not in result.replace("\r\n", "")
    assert ("# kept" in text) == ("# kept" in result)


def test_a_missing_license_must_be_given():
    with pytest.raises(ManifestError, match=r"x\.toml: \[general\] license: missing") as caught:
        migrate('[general]\nname = "ab"\nbackends = []\n', source="x.toml")
    assert "kernforge adopt . --license Apache-2.0" in caught.value.hint
    assert 'license = "MIT"' in migrate(V3.replace('license = "MIT"\n', ""), license_name="MIT")


def test_a_file_is_rewritten_atomically_or_unchanged(tmp_path):
    path = tmp_path / "build.toml"
    path.write_bytes(V4.replace("\n", "\r\n").encode())
    migrate_file(path)
    assert path.read_bytes().decode() == migrate(V4).replace("\n", "\r\n")
    before = path.stat().st_mtime_ns
    migrate_file(path)
    assert path.stat().st_mtime_ns == before
    path.write_text("[general]\n")
    with pytest.raises(ManifestError):
        migrate_file(path)
    assert path.read_text() == "[general]\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["build.toml"]


CASES = Path(__file__).parents[2] / "data" / "manifests"


def test_edition_2_gains_the_backends_of_its_sections():
    text = (CASES / "older-edition-2.toml").read_text()
    result = migrate(text, license_name="MIT")
    assert (
        result
        == """\
# The layout of most tutorials.
[general]
name = "older-two"
version = 1
license = "MIT"
backends = ["cuda"]
edition = 5

[general.hub]
repo-id = "o/older-two"

[general.cuda]
minver = "12.6"

[torch]
src = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]

[kernel.two] # the only one
backend = "cuda"
depends = ["torch"]
src = ["csrc/two.cu"]
"""
    )
    assert parse(result).content == parse(text).content.replace('"unknown"', '"MIT"')


def test_a_universal_kernel_is_python_alone():
    result = migrate((CASES / "older-edition-2-universal.toml").read_text(), license_name="MIT")
    assert "[torch]" not in result
    assert '[torch-noarch]\npyext = ["py", "json"]' in result
    assert "universal =" not in result
    assert isinstance(parse(result).framework, TorchNoarch)


# -- recognised --

GENERAL = '[general]\nname = "ab"\nbackends = ["cpu"]\n'
NAME = '[general]\nname = "ab"\n'
SECTION = '[kernel.ab]\nbackend = "cuda"\ndepends = []\nsrc = []\n'
FOURTH = f'{GENERAL}version = 1\nlicense = "MIT"\n'


@pytest.mark.parametrize(
    ("text", "edition"),
    [
        (f"{FOURTH}edition = 5\n[torch]\n", Edition.V5),
        (f"{FOURTH}[torch]\n", Edition.V4),
        (f'{FOURTH}[torch]\nstable-abi = "2.11"\n', Edition.V4),
        (f"{FOURTH}[torch-noarch]\n", Edition.V4),
        (FOURTH, Edition.V3),
        (f"{GENERAL}version = 2\n[torch]\n", Edition.V3),
        (f'{GENERAL}license = "MIT"\n[tvm-ffi]\nsrc = []\n', Edition.V3),
        (GENERAL, Edition.V3),
        (f"{NAME}[torch]\n{SECTION}", Edition.V2),
        (f"{NAME}universal = false\n[torch]\n{SECTION}", Edition.V2),
        (f"{NAME}universal = true\n[torch]\n", Edition.V2),
        (f'{NAME}license = "MIT"\n[torch]\n{SECTION}', Edition.V2),
    ],
)
def test_the_edition_is_recognised_by_its_keys(text, edition):
    assert edition_of(text) == edition


def test_assumed_values_of_an_old_file_are_noted():
    manifest = parse(f"{NAME}[torch]\n{SECTION}", source="build.toml")
    (note,) = manifest.notes
    assert note == (
        'build.toml is of edition 2, read as edition 5 with backends = ["cuda"], version = 1, '
        'license = "unknown"; run `kernforge adopt . --license NAME` to convert it to edition 5'
    )
    assert manifest.general.license == "unknown"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (f"{FOURTH}[torch]\nsrcs = []\n", "did you mean 'src'?"),
        (f'{FOURTH}[torch]\nstable-abi.cuda = "2.11"\n', "stable-abi: new in edition 5"),
        (f'{GENERAL}version = 1\n[torch]\ncxx-flag = ["x"]\n', "did you mean 'cxx-flags'?"),
        (f"{GENERAL}version = 1\n[torch]\ncxx-flags = []\n", "license: missing"),
        (f'{GENERAL}license = "MIT"\n[torch-noarch]\n', "version: missing"),
        (f"{GENERAL}version = 1\nlicense = 3\n", "license = 3: expected a string"),
    ],
)
def test_a_broken_file_is_not_taken_for_an_old_one(text, mistake):
    with pytest.raises(ManifestError) as caught:
        parse(text)
    assert mistake in caught.value.message
    assert "edition 3" not in caught.value.message
