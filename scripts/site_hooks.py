# SPDX-License-Identifier: Apache-2.0
"""Hooks of MkDocs: pages outside ``docs/`` and links as GitHub follows them.

The files of the documentation are written for GitHub, where a link may lead to any file of the
repository. The site has ``docs/``, the pages of ``PAGES`` and the files of ``FILES``; each link is
resolved in the repository and pointed at the same file in the site. A link to a file that the
site lacks is a warning, which ``mkdocs build --strict`` makes an error.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "kernels/*/README.md")
FILES = (
    *("LICENSE", "benchmarks/results/*.json"),
    *("tests/attacks_on_us/test_*.py", "tests/fuzz/test_fuzz.py"),
    "tests/unit/build/execute/test_sandbox.py",
)
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_log = logging.getLogger("mkdocs.hooks.site_hooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files from outside of ``docs/``."""
    for pattern in (*PAGES, *FILES):
        for path in sorted(ROOT.glob(pattern)):
            uri = _uri(path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs passes them by name
    """Point the links of a page at the site's files."""
    here = Path(page.file.abs_src_path or "").relative_to(ROOT).as_posix()

    def link(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        uri = _uri(path)
        if files.get_file_from_path(uri) is None:
            _log.warning("%s links to %s, which the site lacks", here, target)
            return match[0]
        relative = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{relative}{match[3] or ''})"

    parts = _CODE.split(markdown)  # text and code in turns
    return "".join(part if i % 2 else _LINK.sub(link, part) for i, part in enumerate(parts))


def _uri(path: str) -> str:
    """The path in the site of a path of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return "index.md" if path == "README.md" else path.replace("/README.md", ".md")
