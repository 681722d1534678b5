# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.kernels import lock

import kernforge

REPO = "owner/toy"


APPLICATION = """
    import kernforge
    kernel = kernforge.load_kernel("owner/toy")
"""


@pytest.mark.parametrize(
    ("place", "how"), [("package", "-m"), ("nested", "import"), ("distribution", "import")]
)
def test_the_lock_of_the_calling_application_is_found(put, tmp_path, place, how):
    commit = put(REPO, files={"__init__.py": "print('loaded')"})
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
    lock(where / "kernels.lock", (REPO, 1, commit))
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
