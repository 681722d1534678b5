# SPDX-License-Identifier: Apache-2.0
"""A Python without OpenSSL, or whose OpenSSL is gone: an error with a hint each time."""

import json
import os
import subprocess
import sys

import pytest
from support import projects

BUILT_WITHOUT = "import sys; sys.modules['_ssl'] = None\n"
LIBRARY_GONE = """import sys

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "_ssl":
            raise ImportError("libssl.so.1.1: cannot open shared object file", name=name)

sys.meta_path.insert(0, Finder)
"""


@pytest.fixture(params=[BUILT_WITHOUT, LIBRARY_GONE], ids=["built without", "library gone"])
def command(request, tmp_path):
    """A function that runs a command in such a Python: exit code, document, standard error."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(request.param)
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "HF_", "KERNFORGE_"))},
        "PYTHONPATH": os.pathsep.join(paths),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "https://index.invalid/simple",
        "HF_ENDPOINT": "https://hub.invalid",
        "KERNFORGE_HOME": str(tmp_path / "home"),
        "KERNFORGE_STORE_TRUST": "all-writers",
    }

    def call(*arguments):
        argv = [sys.executable, "-m", "kernforge", *map(str, arguments), "--json"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr

    return call


def test_doctor_says_that_the_index_needs_tls(command):
    _, document, _ = command("doctor")
    findings = {finding["rule"]: finding for finding in document["findings"]}
    assert "needs TLS" in findings["index"]["message"]


def test_commands_that_need_tls_say_so_and_others_run(command, tmp_path):
    project = projects.write(tmp_path / "project")
    index, hub = "https://index.invalid/simple/torch/", "a Hugging Face hub"
    for argv, what in (
        (("build", project), index),
        (("lock", project), index),
        (("info", "me/x"), hub),
    ):
        code, document, _ = command(*argv)
        assert (code, document["error"]) == (2, "MissingPackageError")
        assert f"{what} needs TLS" in document["message"]
        assert "libssl-dev" in document["hint"]
    code, found, notes = command("search", "x")  # in the user's own registry
    assert (code, found) == (0, [])
    assert "was not searched: a Hugging Face hub needs TLS" in notes
    for argv in (("build", "--list", project), ("cache",), ("search", "--local")):
        code, _, notes = command(*argv)
        assert code == 0, notes
