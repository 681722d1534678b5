# SPDX-License-Identifier: Apache-2.0
"""The pages of package indexes: JSON (PEP 691) or HTML (PEP 503)."""

from __future__ import annotations

import contextlib
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin

from kernforge.errors import NetworkError, ToolchainError
from kernforge.system import untrusted
from kernforge.system.http import SIGN_IN, SIGN_IN_HINT, bare, following

if TYPE_CHECKING:
    from kernforge.toolchain.index.http import Page

_SHA256 = re.compile("[0-9a-f]{64}")


def listed_files(page: Page) -> list[tuple[str, str, str]]:
    """Name, address and hash of each file of an index page that was not yanked (PEP 503, 691)."""

    def refused(reason: str) -> ToolchainError:
        return ToolchainError(
            f"{bare(page.url).partition('?')[0]} is not a page of a package index: {reason}",
            hint=SIGN_IN_HINT
            if reason == SIGN_IN
            else "check index-url, extra-index-url and find-links in pip's configuration",
        )

    with untrusted.foreign_parser(refused):
        base = page.url
        if page.content_type.endswith("json"):
            document = untrusted.parse_json(page.text)
            edition, links = document["meta"]["api-version"], document["files"]
        elif page.text.count("<") > untrusted.MEMBERS:
            raise refused(f"it has more than {untrusted.MEMBERS:,} elements")
        else:
            parser = _Links()
            parser.feed(page.text)
            edition, links, base = parser.edition, parser.links, urljoin(base, parser.base)
            if parser.has_form and not any(each["filename"].endswith(".whl") for each in links):
                raise refused(SIGN_IN)
        if edition.partition(".")[0] != "1":
            raise refused(f"its edition is {edition}, and kernforge reads edition 1")
        if len(links) > untrusted.MEMBERS:
            raise refused(f"it lists more than {untrusted.MEMBERS:,} files")
        return [
            (str(link["filename"]), url, _sha256(link.get("hashes")))
            for link in links
            if not link.get("yanked") and (url := _address(base, link["url"]))
        ]


class _Links(HTMLParser):
    """The links of a page in the form of PEP 691."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.edition, self.has_form = "", "1.0", False
        self.links: list[dict[str, Any]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        href = given.get("href", "")
        if tag == "a" and href:
            place, _, fragment = href.partition("#")
            kind, _, digest = fragment.partition("=")
            self.links.append(
                {
                    # As pip does: pages of links show other texts.
                    "filename": unquote(place.partition("?")[0]).rpartition("/")[2],
                    "url": place,
                    "hashes": {kind: digest},
                    "yanked": "data-yanked" in given,
                }
            )
        elif tag == "base":
            self.base = self.base or href
        elif tag == "form":
            self.has_form = True
        elif tag == "meta" and given.get("name") == "pypi:repository-version":
            self.edition = given.get("content", "")


def _address(base: str, link: str) -> str:
    """The address of a link; empty where it cannot be followed, as from https to http."""
    if base.startswith("file:"):
        return urljoin(base, link)
    with contextlib.suppress(NetworkError):
        return following(base, link)
    return ""


def _sha256(digests: Any) -> str:
    """The hash among those of a file; empty where the page gives none, or gives something else."""
    sha256 = (digests or {}).get("sha256", "")
    return sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else ""
