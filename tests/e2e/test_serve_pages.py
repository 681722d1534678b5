# SPDX-License-Identifier: Apache-2.0
"""The pages of a server in a browser, and the code that they give to copy."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from support.pages import Page, kernel
from support.programs import output
from support.served import publish, served

from kernforge.registry.directory import DirectoryRegistry

CHROMIUM = shutil.which("chromium")
REPO = "acme/scale"
CARD = """# Scale

![plot](https://elsewhere.example/plot.png) [the project](https://elsewhere.example)

|  | torch | this |
|--|------:|-----:|
| a row whose words are too long for a phone | 1.0 | 2.0 |

```python
kernel.scale(x, factor=0.5)  # a line of code that is wider than the screen of a telephone is
```
"""
FIT = "torch=2.12&backend=cu130&gpu=9.0&platform=x86_64-linux"
PATHS = {
    "home": "/",
    "search": "/search?q=s",
    "none": "/search?q=nothing",
    "kernel": f"/kernels/{REPO}",
    "fits": f"/kernels/{REPO}?{FIT}",
    "nothing fits": f"/kernels/{REPO}?{FIT.replace('2.12', '2.9')}",
    "missing": "/kernels/acme/none",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("pages")
    registry = DirectoryRegistry(root / "registry")
    files = {**kernel(root / "build", name="scale"), "README.md": CARD.encode()}
    publish(registry, REPO, files, "v1.0.0")
    publish(registry, REPO, {**files, "source/x": b""}, "v1.1.0", "v1", "main")
    universal = kernel(root / "any", "torch-universal", files={"__init__.py": "ANSWER = 42\n"})
    publish(registry, "acme/toy", universal, "v1.0.0")
    publish(registry, "acme/toy", {**universal, "more": b""}, "v1.1.0", "v1", "main")
    with served(registry.root, root / "log") as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("Debian's chromium is not installed")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_on_phones_and_in_the_dark(server, browser, scheme, width):
    # The checker is a script, which the policy of the pages forbids.
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    for path in PATHS.values():
        page.goto(server.url + path)
        violations = Axe().run(page).response["violations"]
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in violations] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_pages_work_without_scripts_and_ask_no_other_host(server, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    asked, messages = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    for name, path in PATHS.items():
        page.goto(server.url + path)
        assert name == "missing" or not messages
    page.goto(server.url)
    page.get_by_role("searchbox").fill("scale")
    page.keyboard.press("Enter")
    page.get_by_role("link", name=REPO).click()
    page.get_by_label("Version", exact=True).select_option("1.0.0")
    page.get_by_role("button", name="Show").click()
    page.get_by_label("torch", exact=True).fill("2.12")
    page.get_by_label("GPU").select_option("9.0")
    page.get_by_role("button", name="Fits your torch?").click()
    answer = page.get_by_role("status").inner_text()
    assert "would load torch212-cxx11-cu130-x86_64-linux" in answer
    assert page.locator("h1").inner_text() == f"{REPO} 1.0.0"
    assert all(url.startswith(f"{server.url}/") for url in asked)
    context.close()


def test_the_keyboard_reaches_search_forms_and_code(server, browser):
    page = browser.new_page()
    page.goto(server.url + PATHS["kernel"])
    reached = []
    for _ in range(20):
        page.keyboard.press("Tab")
        focus = page.locator(":focus")
        reached.append(focus.get_attribute("aria-label") or focus.get_attribute("id") or "")
        assert focus.evaluate("e => getComputedStyle(e).outlineStyle") != "none"
    order = ["q", "version", "With kernforge", "With kernels", "Wheels for pip", "torch"]
    assert [name for name in reached if name in order] == order
    page.goto(server.url + PATHS["kernel"])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#content")
    page.close()


@pytest.mark.parametrize("version", ["1.1.0", "1.0.0"])
def test_code_of_a_page_runs_as_it_is(server, tmp_path, version):
    html = server.ask(f"/kernels/acme/toy?version={version}").body.decode()
    own, client, lock, wheel, verify = Page(html).code
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KERNFORGE_HOME": str(tmp_path / "home"),
        "HF_HOME": str(tmp_path / "hf"),
        "HOME": str(tmp_path),
    }

    def run(*argv, **more):
        return output(argv, tmp_path, env=environment, **more)

    says = "\nassert kernel.ANSWER == 42\n"
    run(sys.executable, "-c", own + says)
    endpoint = re.search("HF_ENDPOINT=(.*)", client)[1]
    run(sys.executable, "-c", client + says, HF_ENDPOINT=endpoint)
    project, command = lock.split("# shell\n")
    (tmp_path / "pyproject.toml").write_text(project)
    run("bash", "-c", command)
    assert "acme/toy" in (tmp_path / "kernels.lock").read_text()
    run("bash", "-c", wheel)
    assert [path.name.split("-")[1] for path in (tmp_path / "dist").iterdir()] == [version]
    assert "2 files as built" in run("bash", "-c", f"{verify} --allow-unsigned")
