# SPDX-License-Identifier: Apache-2.0
"""Hooks of MkDocs: pages outside ``docs/``, pages made from the code, links as GitHub follows them.

The files of the documentation are written for GitHub, where a link may lead to any file of the
repository. The site has ``docs/`` and the pages of ``PAGES``; a link to one of them is pointed at
the same page in the site, a link to another file of the repository becomes its text. A link to
nothing is a warning, which ``mkdocs build --strict`` makes an error.
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import docs_reference

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "kernels/*/README.md")
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_log = logging.getLogger("mkdocs.hooks.site_hooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files from outside of ``docs/``, and the pages made from the code."""
    for uri, text in docs_reference.pages().items():
        files.append(File.generated(config, uri, content=text))
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            uri = _uri(path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs passes them by name
    """Point the links of a page at the site's files."""
    source = page.file.abs_src_path
    here = Path(source).relative_to(ROOT).as_posix() if source else f"docs/{page.file.src_uri}"

    def link(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        uri = _uri(path)
        if files.get_file_from_path(uri):
            relative = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
            return f"[{match[1]}]({relative}{match[3] or ''})"
        if not (ROOT / path).exists():
            _log.warning("%s links to %s, which does not exist", here, target)
        return match[1]

    parts = _CODE.split(markdown)  # text and code in turns
    return "".join(part if i % 2 else _LINK.sub(link, part) for i, part in enumerate(parts))


def _uri(path: str) -> str:
    """The path in the site of a path of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return "index.md" if path == "README.md" else path.replace("/README.md", ".md")
