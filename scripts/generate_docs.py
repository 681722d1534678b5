# SPDX-License-Identifier: Apache-2.0
"""Write the pages of ``docs/`` that are made and yet kept in git: ``make docs``.

They are what a reader of the repository looks up without the site: the results, from the documents
in ``benchmarks/results``, and the keys of build.toml. The site's other references are made when it
is built, by ``docs_reference.py``.
"""

from __future__ import annotations

from pathlib import Path

import docs_manifest
import docs_results

ROOT = Path(__file__).parents[1]


def pages() -> dict[Path, str]:
    """Every such file with its text."""
    results = ROOT / "benchmarks" / "results"
    docs = ROOT / "docs"
    return {
        **{docs / "results" / f"{n}.md": text for n, text in docs_results.pages(results).items()},
        docs / "reference" / "manifest.md": docs_manifest.page(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))
