# SPDX-License-Identifier: Apache-2.0
"""Notebooks that run with this Python."""

import json
import sys

import pytest


def run(texts, tmp_path, monkeypatch):
    """The cells of a notebook after it ran; errors of cells are outputs."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    spec = tmp_path / "data" / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "", "language": "python"})
    )
    cells = [nbformat.v4.new_code_cell(text) for text in texts]
    book = nbformat.v4.new_notebook(cells=cells)
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    limits = {"timeout": 300, "startup_timeout": 300}
    client.NotebookClient(book, **limits, kernel_name="python3", allow_errors=True).execute()
    return book.cells
