# SPDX-License-Identifier: Apache-2.0
"""Values that the format allows and that no compiler can do anything with."""

import pytest
from support import projects

from kernforge.errors import ManifestError
from kernforge.project import api


def read(tmp_path, old, new):
    root = projects.write(tmp_path, backends=("cpu", "cuda"))
    text = (root / "build.toml").read_text()
    assert old in text
    (root / "build.toml").write_text(text.replace(old, new))
    return api.read_project(root)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'stable-abi = "2.10"',
            'stable-abi = "2.3"',
            r'build.toml:\d+: \[torch\] stable-abi = "2.3": torch 2.3 has no stable ABI; it begins',
        ),
        (
            'stable-abi = "2.10"',
            'stable-abi.cuda = "2.8"',
            r'stable-abi.cuda = "2.8": torch 2.8 has no stable ABI',
        ),
        (
            '["9.0"]',
            '["9.9"]',
            r'build.toml:\d+: \[kernel.cuda\] cuda-capabilities\[0\] = "9.9": no GPU has the',
        ),
        ('["9.0"]', '["8.0", "9.9+PTX"]', "no GPU has the compute capability 9.9"),
        ('["9.0"]', '["sm_90"]', "not a compute capability; write it like 8.0"),
        (
            'src = ["times_two.cu"',
            'src = ["/tmp/x.cu"',
            r'src\[0\] = "/tmp/x.cu": an absolute path',
        ),
    ],
)
def test_a_wrong_value_is_reported_with_its_line(tmp_path, old, new, message):
    with pytest.raises(ManifestError, match=message):
        read(tmp_path, old, new)


@pytest.mark.parametrize("capabilities", ['["5.0", "9.0a", "12.0f", "12.1+PTX"]', "[]"])
def test_what_some_toolkit_knows_is_taken(tmp_path, capabilities):
    read(tmp_path, '["9.0"]', capabilities)


def test_patterns_are_files_once_the_project_is_read(tmp_path):
    found = read(tmp_path, 'src = ["times_two.cu", "times_two.h"]', 'src = ["*.cu", "*.h"]')
    assert found.manifest.kernels["cuda"].src == ("times_two.cu", "times_two.h")
    assert '"*.cu"' in found.manifest_text


def test_a_capability_of_no_gpu_beside_others_is_a_note(tmp_path):
    (note,) = read(tmp_path, '["9.0"]', '["9.0", "11.8"]').manifest.notes
    assert note.startswith("[kernel.cuda] cuda-capabilities 11.8 is left out: no GPU has")
