# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.kernels import lock

import kernforge
from kernels import _rust as rust
from kernforge.errors import RequestError
from kernforge.loader.lock import KernelLocks

COMMIT = "D0610aa58db33b142c86b59598a2a1c730f52996"
DEPENDENCIES = [
    {"repo-id": "a/b", "version": 1},
    {"repo-id": "a/b", "version": 10},
    {"repo-id": "a/b", "version": 2, "revision": None},
    {"repo-id": "a/b", "revision": "main"},
    {"repo-id": "z/z", "version": (1 << 64) - 1},
    *({"repo-id": "a/b", "version": v} for v in (-1, 1.0, True, "1", None, 1 << 64)),
    {"repo-id": "a/b", "version": 1, "revision": "x"},
    {"repo-id": "a/b", "version": 1, "more": 1},
    {"repo-id": 5, "version": 1},
    {"repo-id": "a/b", "revision": 5},
    {"version": 1},
    {"repo-id": "a/b"},
    None,
]
LOCKS = [
    {"commit": COMMIT},
    {"commit": "a" * 64},
    *({"commit": c} for c in ("abc", "g" * 40, f" {COMMIT}", "", None, 5)),
    {"commit": COMMIT, "more": 1},
    {},
    "a" * 40,
]


def texts():
    """Locks of the new form, of which some are right."""
    entries = [
        {"dependency": dependency, "lock": lock}
        for dependency, lock in itertools.product(DEPENDENCIES, LOCKS)
    ]
    yield from (json.dumps([entry]) for entry in entries)
    right = [entry for entry in entries[:30] if entry["lock"] == {"commit": COMMIT}]
    yield json.dumps(right)
    yield json.dumps(right + right[:1])
    yield json.dumps([{**right[0], "more": 1}])
    yield from ("", "[]", "{}", "null", "[[]]", '["a"]', "[{}]", "[] x", "[" * 100000)
    yield json.dumps(right).replace('"version": 1}', '"version": 1, "version": 1}')


def said(locks):
    return [(k.depend.repo_id, k.depend.version, k.depend.revision, k.commit) for k in locks]


def said_by_the_client(text):
    found = []
    for dependency, locked in rust.KernelLocks.from_json(text).items():
        version = getattr(dependency.version, "version", None)
        revision = getattr(dependency.version, "revision", None)
        found.append((dependency.repo_id, version, revision, locked.commit))
    return found


def test_locks_parse_as_in_the_hubs_client():
    accepted = 0
    for text in texts():
        try:
            theirs = said_by_the_client(text)
        except ValueError:
            with pytest.raises(RequestError, match=r"kernels\.lock"):
                KernelLocks.from_json(text)
            continue
        assert said(KernelLocks.from_json(text).kernels) == theirs, text
        accepted += 1
    assert accepted > 10


def test_lock_of_an_old_client_is_refused():
    old = {"repo_id": "a/b", "sha": COMMIT, "variants": {}}
    with pytest.raises(RequestError, match=r"0\.16") as caught:
        KernelLocks.from_json(json.dumps([old]), source="some/kernels.lock")
    assert "kernforge lock" in caught.value.hint


@pytest.mark.parametrize(
    "dependency",
    [
        *({"repo-id": "a/b", "revision": r} for r in ("/abs/path", "../x", "", "a//b", ".git")),
        *({"repo-id": r, "version": 1} for r in ("z", "../a", "a/b/c", "/etc/x")),
    ],
)
def test_path_traversal_in_a_lock_is_refused(dependency):
    text = json.dumps([{"dependency": dependency, "lock": {"commit": COMMIT}}])
    with pytest.raises(RequestError, match=r"^kernels\.lock: "):
        KernelLocks.from_json(text)


APPLICATION = """
    import kernforge
    kernel = kernforge.load_kernel("owner/toy")
"""


@pytest.mark.parametrize(
    ("place", "how"), [("package", "-m"), ("nested", "import"), ("distribution", "import")]
)
def test_the_lock_of_the_calling_application_is_found(put, tmp_path, place, how):
    commit = put("owner/toy", files={"__init__.py": "print('loaded')"})
    app = tmp_path / "site/app/inner"
    app.mkdir(parents=True)
    (app.parent / "__init__.py").touch()
    (app / "__init__.py").touch()
    (app / "main.py").write_text(textwrap.dedent(APPLICATION))
    info = tmp_path / "site/the_app-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: the-app\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("app\n")
    where = {"package": app.parent, "nested": app, "distribution": info}[place]
    lock(where / "kernels.lock", ("owner/toy", 1, commit))
    argv = ["-m", "app.inner.main"] if how == "-m" else ["-c", "import app.inner.main"]
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=tmp_path / "site",
        env={**os.environ, "PYTHONPATH": str(Path(kernforge.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("loaded\n", "")
