# SPDX-License-Identifier: Apache-2.0
"""The references of the skill for coding assistants, made from the documentation.

``generate_docs.py`` writes them. A link to a page that the skill has leads there, any other to the
site; comments for the tests of the pages are left out. What was measured on GPUs is taken from the
READMEs of the kernels.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from kernforge import errors

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SKILL = ROOT / "src/kernforge/templates/skills/kernforge"
START, END = "<!-- references:start -->", "<!-- references:end -->"
MEASURED = "measured-on-gpus.md"
# In the order in which somebody who writes a kernel needs them.
PAGES = (
    "tutorial",
    "how-to/author/use-the-jit",
    "how-to/author/use-dev-and-notebooks",
    "how-to/author/add-an-operator",
    "how-to/author/add-gradients",
    "how-to/author/test-a-kernel",
    "how-to/author/measure-a-kernel",
    "how-to/author/find-where-the-time-goes",
    "how-to/author/fix-findings",
    "how-to/author/choose-variants",
    "how-to/author/come-from-a-tutorial",
    "how-to/author/build-a-setup-py-project",
    "how-to/author/adopt-a-project",
    "how-to/author/set-up-ci",
    "how-to/release/release-a-version",
    "how-to/release/publish-to-the-hub",
    "how-to/release/ship-as-wheels",
    "how-to/user/load-kernels",
    "how-to/user/kernelize-a-model",
    "reference/headers",
    "reference/manifest",
    "reference/errors",
)
_TOLD = re.compile(r"what was tried|figures", re.IGNORECASE)
_COMMENT = re.compile(r"^<!-- .*? -->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)", re.DOTALL)


def pages(readmes: list[Path]) -> dict[Path, str]:
    """Every file of the skill with its text.

    Args:
        readmes: of the kernels whose figures it tells.
    """
    names = {f"{page}.md": f"{posixpath.basename(page)}.md" for page in PAGES}
    references = {
        target: _relinked((DOCS / page).read_text(), f"docs/{page}", names)
        for page, target in names.items()
    }
    references[MEASURED] = _measured(readmes, names)
    skill = SKILL / "SKILL.md"
    before, _, rest = skill.read_text().partition(START)
    _, _, after = rest.partition(END)
    index = "\n".join(f"- [{_title(text)}](references/{name})" for name, text in references.items())
    return {
        skill: f"{before}{START}\n{index}\n{END}{after}",
        **{SKILL / "references" / name: text for name, text in references.items()},
    }


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ").replace("`", "")


def _relinked(text: str, where: str, names: dict[str, str]) -> str:
    """A page for another directory.

    Args:
        text: the page.
        where: its path in the repository.
        names: pages that the skill has, below ``docs``, with their names there.
    """

    def link(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        if "://" in target or target.startswith("#"):
            return found[0]
        path, _, anchor = target.partition("#")
        full = posixpath.normpath(posixpath.join(posixpath.dirname(where), path))
        page = full.removeprefix("docs/")
        tail = f"#{anchor}" if anchor else ""
        if page in names:
            return f"[{label}]({names[page]}{tail})"
        if full.startswith("docs/") and full.endswith(".md"):
            return f"[{label}]({errors.page(page.removesuffix('.md'))}{tail})"
        return label  # a file of the repository, which a reader of the skill does not have

    return _LINK.sub(link, _COMMENT.sub("", text))


def _measured(readmes: list[Path], names: dict[str, str]) -> str:
    parts = [_MEASURED]
    for readme in readmes:
        text = readme.read_text()
        sections = re.split(r"^## ", text, flags=re.MULTILINE)
        told = [section for section in sections[1:] if _TOLD.match(section)]
        if told:
            where = readme.relative_to(ROOT).as_posix()
            parts.append(f"## {readme.parent.name}\n")
            parts += [_relinked(f"### {section}", where, names) for section in told]
    return "\n".join(part.rstrip() + "\n" for part in parts)


_MEASURED = """# What was measured on GPUs

Figures and failed experiments of the kernels of kernforge's own repository, on an NVIDIA H200.
Nothing here was measured on Blackwell: for it these kernels are compiled (`kernforge build --arch
10.0`), and wgmma, which belongs to compute capability 9.0 alone, needs another path there.
"""
