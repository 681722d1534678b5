# SPDX-License-Identifier: Apache-2.0
"""The HTML of a kernel's card, which is untrusted Markdown.

HTML in it is shown as text, images as their text: a page requests nothing from other hosts. What
the parser writes is sanitised once more.
"""

from __future__ import annotations

import functools
import re

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---(?:\n|\Z)", re.DOTALL)
_HEADINGS = ("h3", "h4", "h5", "h6")
_TAGS = "a blockquote br code div em hr li ol p pre s span strong table tbody td th thead tr ul"
_CLASSES = {"left", "center", "right", "image", "scroll"}


@functools.lru_cache(maxsize=64)
def render(text: str) -> Markup:
    """The HTML of a card, whose headings begin at the third level."""
    tokens = _MARKDOWN.parse(_without_comments(_FRONT_MATTER.sub("", text.replace("\r\n", "\n"))))
    _nest_headings(tokens)
    for index, token in enumerate(tokens):
        if token.type == "th_open" and not tokens[index + 1].content:
            token.tag = tokens[index + 2].tag = "td"  # it heads nothing
        if style := token.attrs.pop("style", ""):  # the alignment of a table's cell
            token.attrs["class"] = str(style).removeprefix("text-align:")
    html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return Markup(  # noqa: S704 - sanitised
        nh3.clean(
            html,
            tags={*_TAGS.split(), *_HEADINGS},
            attributes={"a": {"href"}, "ol": {"start"}, "div": {"tabindex"}},
            allowed_classes=dict.fromkeys(("div", "span", "td", "th"), _CLASSES),
            set_tag_attribute_values={"pre": {"tabindex": "0"}, "th": {"scope": "col"}},
            url_schemes={"http", "https", "mailto"},
            url_relative="deny",
            link_rel="nofollow noopener",
        )
    )


def _without_comments(text: str) -> str:
    """The text without HTML comments, such as the mark of a generated card."""
    first, *rest = text.split("<!--")
    after = (each.partition("-->")[2] if "-->" in each else f"<!--{each}" for each in rest)
    return first + "".join(after)


def _nest_headings(tokens: list[Token]) -> None:
    """Make each heading one level below the heading that it belongs to; the page has h1 and h2."""
    above: list[str] = []
    for token in tokens:
        if token.type == "heading_open":
            above = [tag for tag in above if tag < token.tag] + [token.tag]
        if token.type in {"heading_open", "heading_close"}:
            token.tag = _HEADINGS[min(len(above), len(_HEADINGS)) - 1]


def _image(_: object, tokens: list[Token], index: int, *__: object) -> str:
    return f'<span class="image">{escape(tokens[index].content or "image")}</span>'


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_MARKDOWN.add_render_rule("image", _image)
_MARKDOWN.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>')
_MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>")
