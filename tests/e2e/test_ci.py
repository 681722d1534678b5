# SPDX-License-Identifier: Apache-2.0
"""Every line of the CI jobs, the image and the container runs unchanged.

The test provides the variables, the checkout of a tag and the artifacts; the registry is a
directory. One line differs: a job signs with its identity, and here a key signs the same variants.
"""

import json
import re
import shlex
import shutil

import pytest
from e2e.walkthrough import Walk
from support.programs import output

pytestmark = [pytest.mark.native, pytest.mark.torch]
torch = pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")

PATHS = {"github": ".github/workflows/kernel.yml", "gitlab": ".gitlab-ci.yml"}
APP = """[project]
name = "app"
version = "1"

[tool.kernels.dependencies]
"me/my-op" = 1
"""
LOAD = """
import kernforge, torch
kernel = kernforge.get_kernel("me/my-op", version=1, trust_remote_code=True)
assert kernel.my_op(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
"""


def jobs(project, forge):
    """The lines that each job runs, by job, in the order of the file."""
    document = yaml.safe_load((project / PATHS[forge]).read_text())
    if forge == "github":
        steps = {name: job["steps"] for name, job in document["jobs"].items()}
        return {n: [s["run"] for s in parts if "run" in s] for n, parts in steps.items()}
    parts = {name: job for name, job in document.items() if isinstance(job, dict)}
    return {name: job["script"] for name, job in parts.items() if "script" in job}


def patterns(project, forge):
    """The variants that each job of the matrix builds."""
    document = yaml.safe_load((project / PATHS[forge]).read_text())
    if forge == "github":
        rows = document["jobs"]["build"]["strategy"]["matrix"]["include"]
        return [row["variants"] for row in rows]
    return [row["VARIANTS"] for row in document["build"]["parallel"]["matrix"]]


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_every_line_of_jobs_image_and_container_runs(tmp_path, kept_home, fresh_venv, forge):
    top = tmp_path / "work"
    top.mkdir()
    # The author's own commands come before the jobs, which install what they need.
    venv = fresh_venv()
    venv.install("kernforge[build,trust]")
    walk = Walk(None, top, kept_home, venv)
    project, registry, app = top / "my-op", top / "registry", top / "app"
    env = {**walk.env, "KERNEL_REGISTRY": str(registry), "KERNEL_REPO_ID": "me/my-op"}

    def run(line, cwd=project, **more):
        walk.fork()
        return output(("bash", "-ec", line), cwd, env=env, **more)

    run(f"kernforge new my-op --minimal --ci {forge}", cwd=top)
    run("kernforge lock")
    author = "-c user.name=me -c user.email=me@example.com"
    run(f"git init -q && git add . && git {author} commit -qm first && git tag v1.0.3")
    run("kernforge sign --new-key ../key", cwd=project, KERNFORGE_SIGN_PASSPHRASE="")
    for name, lines in jobs(project, forge).items():
        if name == "test-gpu" and not torch.cuda.is_available():
            continue  # the lines of test-cpu
        for variants in patterns(project, forge) if name == "build" else [""]:
            for line in lines:
                signs = line == "kernforge sign build"
                key = f" --key {shlex.quote(str(top / 'key'))}" if signs else ""
                run(f"{line}{key}", VARIANTS=variants)
    # No torch is installed where the author locks: each kind of GPU gets its variant.
    assert sorted(path.name for path in (project / "build").iterdir()) == [
        f"torch-stable-abi210-{backend}-x86_64-linux"
        for backend in ("cpu", "cu126", "cu128", "cu130")
    ]
    assert len(list((project / "build").glob("*/*.sigstore"))) == 4
    versions = json.loads(run("kernforge info --versions me/my-op --registry ../registry --json"))
    assert "1.0.3" in json.dumps(versions)

    app.mkdir()
    (app / "pyproject.toml").write_text(APP)
    run("kernforge lock . --registry ../registry", cwd=app)
    image = (project / "images/kernels.Dockerfile").read_text()
    lines = re.findall(r"^RUN (.*)$", image, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        here = line.replace("/app", str(app)).replace("/opt/kernels", str(top / "kernels"))
        run(here, cwd=top, REGISTRY=str(registry), PLATFORM="torch2.13-cpu-x86_64-linux")
    shutil.rmtree(registry)
    run(f"python -c {shlex.quote(LOAD)}", cwd=top, KERNFORGE_REGISTRY=str(top / "kernels"))

    container = json.loads((project / ".devcontainer/devcontainer.json").read_text())
    run(container["postCreateCommand"])
