# SPDX-License-Identifier: Apache-2.0
"""Kernels for the pages of ``kernforge serve``, and a client of the pages."""

from html.parser import HTMLParser

from starlette.testclient import TestClient
from support.variants import contents, write_variant

from kernforge.artifact.metadata import Provenance
from kernforge.serve.access import Access
from kernforge.serve.app import Application
from kernforge.serve.source import Source

HOST = "https://kernels.example"
ARCHS = ("7.5", "8.0", "9.0", "10.0", "12.0+PTX")
OPS = ["scale(Tensor x, float factor=1.0, *, Tensor(a!)? out=None) -> Tensor"]
PACKAGE = {
    "__init__.py": "from ._ops import ops\n__all__ = ['scale']\n\n\n"
    "def scale(x, /, factor=1.0, *, out=None):\n    return ops\n",
    "_ops.py": "ops = 1\n",
}
NAMES = (
    *(f"torch2{n}-cxx11-{b}-x86_64-linux" for n in (11, 12) for b in ("cpu", "cu126", "cu130")),
    "torch212-cxx11-cu130-aarch64-linux",
)


def kernel(build, *names, files=PACKAGE, ops=OPS, **fields) -> dict[str, bytes]:
    """The files of a commit with these variants."""
    for name in names or NAMES:
        cuda = "-cu1" in name
        write_variant(
            build,
            variant=name,
            backend="cuda" if cuda else "cpu",
            archs=ARCHS if cuda else None,
            files={**files, "data.bin": name * 5000},
            provenance=Provenance(builder_version="kernforge-1", kernforge={"ops": ops}),
            **fields,
        )
    return contents(build)


def client(registry, *, tokens=None, **options) -> TestClient:
    """A client of a server of a registry."""
    return TestClient(Application(Source(registry, **options), Access(tokens)), base_url=HOST)


class Page(HTMLParser):
    """The text, the elements and the code to copy of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.code: list[str] = []
        self._pre = False
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "pre":
            self._pre = True
            self.code.append("")

    def handle_endtag(self, tag):
        self._pre = self._pre and tag != "pre"

    def handle_data(self, data):
        self.words.append(data)
        if self._pre:
            self.code[-1] += data
