# SPDX-License-Identifier: Apache-2.0
"""Editions 2 to 4: how they are recognised, and noted."""

import pytest

from kernforge.errors import ManifestError
from kernforge.manifest.document import edition_of, parse
from kernforge.manifest.editions import Edition

GENERAL = '[general]\nname = "ab"\nbackends = ["cpu"]\n'
NAME = '[general]\nname = "ab"\n'
SECTION = '[kernel.ab]\nbackend = "cuda"\ndepends = []\nsrc = []\n'
V4 = f'{GENERAL}version = 1\nlicense = "MIT"\n'


@pytest.mark.parametrize(
    ("text", "edition"),
    [
        (f"{V4}edition = 5\n[torch]\n", Edition.V5),
        (f"{V4}[torch]\n", Edition.V4),
        (f'{V4}[torch]\nstable-abi = "2.11"\n', Edition.V4),
        (f"{V4}[torch-noarch]\n", Edition.V4),
        (V4, Edition.V3),
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


def test_the_content_does_not_depend_on_the_path():
    here, there = (parse(f"{V4}[torch-noarch]\n", source=f"{d}/build.toml") for d in "ab")
    assert here.notes != there.notes
    assert here.content == there.content
    assert here.content != parse(f"{V4}[torch]\n", source="a/build.toml").content


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (f"{V4}[torch]\nsrcs = []\n", "did you mean 'src'?"),
        (f'{V4}[torch]\nstable-abi.cuda = "2.11"\n', "stable-abi: new in edition 5"),
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
