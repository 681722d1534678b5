# SPDX-License-Identifier: Apache-2.0
"""Our reading of build.toml against that of the ``kernels`` package."""

from pathlib import Path

import pytest

from kernels import _rust as oracle
from kernforge.errors import ManifestError
from kernforge.manifest.document import parse
from kernforge.manifest.migrate import migrate

CASES = sorted((Path(__file__).parents[1] / "data" / "manifests").glob("*.toml"))
BACKENDS = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu")


def _theirs(directory):
    """Backends, and kernel dependencies for each backend; None for a file that is refused."""
    try:
        build = oracle.Build.open(directory)
    except ValueError:
        return None
    depends = {
        name: [
            (item.repo_id, item.version)
            for item in build.all_kernel_depends(oracle.Backend.from_str(name))
        ]
        for name in BACKENDS
    }
    return [str(backend) for backend in build.general.backends], depends


def _ours(text):
    try:
        general = parse(text).general
    except ManifestError:
        return None
    depends = {
        name: [(item.repo_id, _version(item)) for item in general.kernel_depends_for(name)]
        for name in BACKENDS
    }
    return list(general.backends), depends


def _version(item):
    if item.version is None:
        return oracle.KernelVersion.Revision(item.revision)
    return oracle.KernelVersion.Version(item.version)


@pytest.fixture
def theirs(tmp_path):
    """Ask the oracle about a text."""

    def ask(text):
        (tmp_path / "build.toml").write_bytes(text.encode())
        return _theirs(tmp_path)

    return ask


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_cases_of_our_own(path, theirs):
    text = path.read_bytes().decode()
    if "edition-6" in path.stem:  # newer than the newest client that the index has
        assert theirs(text) is None
    elif path.stem.startswith("stricter-"):
        assert theirs(text) is not None
        assert _ours(text) is None
    elif path.stem.startswith("older-"):
        assert theirs(text) is None
        assert _ours(text) is not None
    else:
        assert theirs(text) == _ours(text)
        assert (_ours(text) is not None) == path.stem.startswith("good-")


OLDER = [path for path in CASES if path.stem == "good-edition-4" or path.stem.startswith("older-")]


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_what_is_migrated_is_accepted_by_both_and_means_what_is_built(path, theirs):
    before = _ours(path.read_text())
    result = migrate(path.read_text(), license_name="MIT")
    assert "edition = 5" in result
    assert theirs(result) == _ours(result) == before


@pytest.mark.parametrize(
    "address",
    [
        "https://example.com/a b",
        "http:a",
        "https://",
        "git@example.com:~a/b",
        "git@ho st:a",
        "sub.host/x:path",
        ":path",
        "é:x",
        "1a:b",
    ],
)
def test_git_addresses(address, theirs):
    text = CASES[0].parent.joinpath("good-minimal.toml").read_text()
    text = text.replace('"MIT"', f'"MIT"\nupstream = "{address}"')
    assert theirs(text) == _ours(text)
