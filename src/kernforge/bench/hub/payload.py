# SPDX-License-Identifier: Apache-2.0
"""Measurements of the hub's benchmark classes as a table, and in the JSON of ``kernels benchmark``.

That document has ``results`` (``workload``, ``timingResults`` in milliseconds, ``verified``),
``machineInfo``, ``kernelCommitSha``, ``benchmarkScriptPath`` and ``benchmarkScriptSha``
(``kernels.cli.benchmark`` of the hub's client 0.17). Ours are beside theirs, under ``kernforge``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernforge.bench.text import counted, duration, interval

HEAD = (
    "workload",
    "mode",
    "candidate",
    "median",
    "95 % interval",
    "calls / rounds",
    "reference",
    "result",
)
_PLACES = 4
OURS, REFERENCE = "kernel", "reference"
"""Names of the candidates that every workload has."""


def payload(
    document: dict[str, Any],
    *,
    device: str,
    kernel_id: str,
    scripts_sha: str,
    system: str,
    cpu: str,
) -> dict[str, Any]:
    """The hub's document, with ours in it.

    Args:
        document: what ``run.run`` returned.
        kernel_id: the id in the kernel's metadata; what its build names itself comes last in it.
        scripts_sha: hex SHA-256 of all scripts, one after the other.
        system: what Python's ``platform`` calls the system, with its release.
        cpu: what it calls the processor.
    """
    machine, mode = document["machine"], main_mode(device)
    return {
        "results": list(_results(document, mode)),
        "machineInfo": {
            "gpu": machine["gpu"] or "N/A",
            "backend": f"CUDA {machine['cuda']}" if device == "cuda" else "CPU",
            "pytorchVersion": machine["torch"],
            "os": system,
            "cpu": cpu,
        },
        "kernelCommitSha": kernel_id.rpartition("_")[2],
        "benchmarkScriptPath": "benchmarks",
        "benchmarkScriptSha": scripts_sha,
        "kernforge": document,
    }


def main_mode(device: str) -> str:
    """The mode that is most like what the hub's client times: warm, by the host's clock."""
    return "launch" if device == "cuda" else "hot"


def _results(document: dict[str, Any], mode: str) -> Iterator[dict[str, Any]]:
    """Results of the workloads that were measured; the others have no time."""
    for case in document["workloads"]:
        row = _row(case, OURS, mode)
        if row is None or "median_ns" not in row:
            continue
        spread = {name: value / 1e6 for name, value in row["spread_ns"].items()}
        times = {
            "mean_ms": spread["mean"],
            "std_ms": spread["std"],
            "min_ms": spread["least"],
            "max_ms": spread["most"],
            "q1_ms": spread["q1"],
            "q3_ms": spread["q3"],
            "iqr_ms": spread["q3"] - spread["q1"],
        }
        entry: dict[str, Any] = {
            "workload": case["name"],
            "timingResults": {
                **{name: round(value, _PLACES) for name, value in times.items()},
                "outliers": row["spread_ns"]["outliers"],
                "iterations": row["samples"],
            },
        }
        if case["reference"] != "none":
            entry["verified"] = True
        yield entry


def rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """The text table: every candidate but the reference, which stands beside each."""
    return [
        _line(case, row, mode)
        for case in document["workloads"]
        for mode in document["settings"]["modes"]
        for row in case["results"]
        if row["mode"] == mode and row["candidate"] != REFERENCE
    ]


def _line(case: dict[str, Any], row: dict[str, Any], mode: str) -> tuple[str, ...]:
    head = (case["name"], mode, row["candidate"])
    if "median_ns" not in row:
        return (*head, "", "", "", "", f"refused: {row['refused']}")
    verdict = "not verified" if case["reference"] == "none" else "verified"
    return (
        *head,
        duration(row["median_ns"]),
        interval(row),
        counted(row),
        _beside(row, _row(case, REFERENCE, mode)),
        verdict if case["reference"] != "beside the kernel" else f"{verdict} beside the kernel",
    )


def _beside(row: dict[str, Any], reference: dict[str, Any] | None) -> str:
    """The reference's time, and how many times as fast the kernel is, if that is sure."""
    if reference is None or "median_ns" not in reference:
        return ""
    measured = reference.get("beside", {}) if row["candidate"] == OURS else {}
    ratio = measured.get("value") or reference["median_ns"] / row["median_ns"]
    apart = reference["low_ns"] > row["high_ns"] or row["low_ns"] > reference["high_ns"]
    if measured:
        apart = measured["verdict"] != "unsure"
    return f"{duration(reference['median_ns'])} ({ratio:.2f}x{'' if apart else ', unsure'})"


def _row(case: dict[str, Any], candidate: str, mode: str) -> dict[str, Any] | None:
    rows = (r for r in case["results"] if (r["candidate"], r["mode"]) == (candidate, mode))
    return next(rows, None)
