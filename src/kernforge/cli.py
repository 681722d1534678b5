# SPDX-License-Identifier: Apache-2.0
"""The command line: parse, choose, do, say. No logic that a test could not call elsewhere.

Exit codes are those of ``kernforge.errors``; 0 is success, 130 an interrupt.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kernforge import __version__
from kernforge import report as reports
from kernforge.errors import CheckError, KernforgeError, UsageError
from kernforge.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from kernforge.build import Crew as BuildCrew
    from kernforge.check import Finding
    from kernforge.own import Brought
    from kernforge.pipeline import Bench

_EXTRA_OF = dict.fromkeys(
    (
        *("abi3audit", "auditwheel", "elftools", "pydantic", "pypi_simple"),
        *("requests", "tomlkit", "urllib3"),
    ),
    "build",
) | {"fsspec": "cluster", "distributed": "cluster", "dask": "cluster"}
_KINDS: tuple[type[KernforgeError], ...] = (KernforgeError, *KernforgeError.__subclasses__())
_EXIT_CODES = "exit codes:\n   0  success\n" + "\n".join(
    f"  {kind.exit_code:2}  {(kind.__doc__ or '').splitlines()[0].rstrip('.')}" for kind in _KINDS
)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit."""
    signal.signal(signal.SIGTERM, _interrupt)
    arguments = parser().parse_args(argv)
    report = Report(as_json=arguments.json, quiet=getattr(arguments, "quiet", False))
    try:
        arguments.verb(arguments, report)
    except KernforgeError as error:
        report.error(error)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        report.error(
            UsageError(
                f"this command needs {error.name}, which is not installed",
                hint=f"pip install 'kernforge[{extra}]'",
            )
        )
        sys.exit(UsageError.exit_code)
    except BrokenPipeError:
        # Who read our output has enough, as `head` does. What is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        report.note("interrupted: every program was stopped and nothing is left half-written")
        sys.exit(130)
    sys.exit(0)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


# -- the commands ------------------------------------------------------------------------------


def _new(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import scaffold  # noqa: PLC0415

    written = scaffold.scaffold(
        arguments.name,
        dest=arguments.dir / arguments.name,
        backends=tuple(arguments.backends),
        license=arguments.license,
    )
    root = arguments.dir / arguments.name
    report.result(
        {"project": str(root), "files": [str(path) for path in written]},
        f"{root}: {len(written)} files\nnext: kernforge build {root}",
    )


def _variants(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import pipeline  # noqa: PLC0415

    project = pipeline.read_project(arguments.project)
    own = pipeline.look_for_own(project, report, _brought(arguments))
    found = pipeline.candidates(project, pipeline.this_cpu(), own)
    document = [
        {"name": c.name, "builds": bool(c.target), "default": c.default, "reason": c.reason}
        for c in found
    ]
    words = {(True, True): "built", (True, False): "on request", (False, False): "left out"}
    rows = [(c.name, words[c.target is not None, c.default], c.reason) for c in found]
    report.result(document, reports.table(rows, head=("variant", "is", "because")))


def _lock(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import matrix, pipeline  # noqa: PLC0415

    bench = _bench(arguments, report)
    targets = matrix.choose(bench.candidates, [])
    wanted = pipeline.needs(bench, targets)
    wanted = dataclasses.replace(
        wanted,
        cuda=wanted.cuda | set(arguments.cuda),
        torch=wanted.torch | set(arguments.torch),
    )
    locked = pipeline.write_lock(bench, wanted, upgrade=arguments.upgrade)
    lines = [f"CUDA {name}: {kit.release}" for name, kit in sorted(locked.cuda.items())]
    lines += [f"torch {name}: {torch.release}" for name, torch in sorted(locked.torch.items())]
    lines += [f"{name}: {headers.release}" for name, headers in sorted(locked.headers.items())]
    lines.append(f"host compiler: {locked.compiler.identity}")
    path = bench.project.root / "kernforge.lock"
    report.result({"lock": str(path)}, "\n".join([str(path), *(f"  {line}" for line in lines)]))


def _build(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import build, checked, eviction, matrix, pipeline  # noqa: PLC0415
    from kernforge.crew import Crew  # noqa: PLC0415
    from kernforge.run import run  # noqa: PLC0415

    size = eviction.limit(os.environ)
    bench = _bench(arguments, report, shared=arguments.shared_store)
    for note in bench.project.manifest.notes:
        report.note(f"note: {note}")
    targets = matrix.choose(bench.candidates, arguments.variant)
    locked, written = pipeline.ensure_lock(bench, targets, locked=arguments.locked)
    if written:
        report.note(f"wrote {bench.project.root / 'kernforge.lock'}: keep it in version control")
    made = pipeline.make_plan(bench, targets, locked, only=arguments.arch)
    if arguments.dry_run:
        known = build.cached(made, bench.store)
        report.result(reports.graph_document(made, known), reports.graph_text(made, known))
        return
    out = arguments.out or bench.project.root / "build"
    findings: list[Finding] = []
    with bench.store.lease():
        isolation = pipeline.prepare_sandbox(bench, made, arguments.sandbox, note=report.note)
        crew: BuildCrew
        if arguments.scheduler:
            from kernforge.cluster import Cluster  # noqa: PLC0415

            build.pull(made, bench.store)
            roots: dict[str, str] = {}
            crew = Cluster(
                arguments.scheduler,
                bench=bench,
                plan=made,
                locked=locked,
                jobs=arguments.jobs,
                isolation=isolation,
                note=report.note,
            )
        else:
            roots = pipeline.fetch(bench, made, locked)
            if received := bench.wheels.received:
                report.note(f"{received / 1e6:.0f} MB came over the network")
            crew = Crew(jobs=arguments.jobs, limit=arguments.memory)
        outcome = pipeline.run_plan(
            bench,
            made,
            roots,
            locked,
            out=out,
            jobs=arguments.jobs,
            events=report,
            crew=crew,
            isolation=isolation,
        )
        if not arguments.no_check:
            for path in outcome.variants.values():
                findings += checked.check(path, store=bench.store, run=run)
        if bench.store.made or bench.store.fetched:
            eviction.trim(bench.store, size)
    document = {
        "variants": {name: str(path) for name, path in outcome.variants.items()},
        "left_out": list(outcome.left_out),
        "failures": [
            {"action": f.action.title, "output": f.output, "repeat": f.repeat}
            for f in outcome.failures
        ],
        "findings": [reports.finding_document(f) for f in findings],
        "actions": reports.spent_document(outcome),
    }
    lines = [str(path) for path in outcome.variants.values()]
    lines += [f"not built: {name}" for name in outcome.left_out]
    lines += [reports.finding_text(f) for f in findings if f.severity != "skipped"]
    lines.append(reports.spent_text(outcome))
    report.result(document, "\n".join(lines))
    pipeline.refuse_failures(made, outcome)
    _refuse_errors(findings)


def _check(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import check  # noqa: PLC0415
    from kernforge.run import run  # noqa: PLC0415

    findings = check.check_build(arguments.dir, run=run, python=sys.executable)
    text = (
        "\n".join(map(reports.finding_text, findings))
        or f"{arguments.dir}: nothing to find fault with"
    )
    report.result([reports.finding_document(f) for f in findings], text)
    _refuse_errors(findings)


def _reproduce(arguments: argparse.Namespace, report: Report) -> None:
    import fnmatch  # noqa: PLC0415

    from kernforge import files, reproduce  # noqa: PLC0415
    from kernforge.home import default_registry, home  # noqa: PLC0415

    subjects = reproduce.find(
        arguments.what,
        registry=arguments.registry or default_registry(),
        version=arguments.version,
        directory=Path(arguments.what),
    )
    pattern = arguments.variant
    subjects = tuple(s for s in subjects if fnmatch.fnmatch(s.statement.variant, pattern))
    if not subjects:
        raise UsageError(f"no variant there is named {pattern!r}", hint="leave --variant out")
    manner = reproduce.Manner(
        mode=arguments.sandbox, jobs=arguments.jobs, progress=report, events=report
    )
    with files.staging(home() / "reproduce") as workplace:
        verdicts = reproduce.again(
            subjects, source=arguments.source, workplace=workplace, manner=manner
        )
    report.result(
        [reports.verdict_document(v) for v in verdicts],
        "\n".join(map(reports.verdict_text, verdicts)),
    )
    wrong = [v.variant for v in verdicts if v.differences]
    if wrong:
        raise CheckError(
            f"{len(wrong)} of {len(verdicts)} variants are not what their sources and lock give",
            hint="each difference above says which file, and which action made it",
        )


def _publish(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import pipeline, publish, registry  # noqa: PLC0415
    from kernforge.home import default_registry  # noqa: PLC0415

    project = pipeline.read_project(arguments.project)
    repo_id = arguments.repo_id or project.manifest.general.hub.repo_id
    if not repo_id:
        raise UsageError(
            "publish where? build.toml has no [general.hub] repo-id",
            hint="add it, or give --repo-id owner/name",
        )
    done = publish.publish(
        arguments.build or project.root / "build",
        registry.open_registry(arguments.registry or default_registry()),
        repo_id,
        arguments.version or pipeline.tagged_version(project),
        card=pipeline.card(project),
    )
    document = {
        "repo_id": repo_id,
        "version": done.version,
        "commit": done.commit,
        "changed": done.changed,
        "variants": list(done.variants),
        "url": done.url,
    }
    said = "published" if done.changed else "already there, unchanged:"
    lines = [f"{said} {repo_id} {done.version} at {done.url}", *(f"  {v}" for v in done.variants)]
    report.result(document, "\n".join(lines))


def _migrate(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import migrate  # noqa: PLC0415

    path = arguments.project / "build.toml"
    notes = migrate.migrate_file(path)
    report.result({"file": str(path), "notes": notes}, "\n".join([f"{path}: edition 5", *notes]))


def _schema(arguments: argparse.Namespace, report: Report) -> None:
    import json  # noqa: PLC0415

    from kernforge import files, schema  # noqa: PLC0415

    document = schema.json_schema()
    text = json.dumps(document, indent=2)
    if arguments.out:
        files.write_atomic(arguments.out, text + "\n")
        report.result({"file": str(arguments.out)}, str(arguments.out))
    else:
        report.result(document, text)


def _cache(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import eviction  # noqa: PLC0415
    from kernforge.home import home  # noqa: PLC0415
    from kernforge.store import Store  # noqa: PLC0415

    store, size = Store(home() / "store"), eviction.limit(os.environ)
    removed = None
    if arguments.trim is not None:
        removed = eviction.trim(store, arguments.trim)
    elif arguments.clear:
        removed = eviction.clear(store, arguments.clear)
    found = eviction.survey(store)
    report.result(
        reports.cache_document(store.root, found, size, removed),
        reports.cache_text(store.root, found, size, removed),
    )


# -- what they share ---------------------------------------------------------------------------


def _bench(arguments: argparse.Namespace, report: Report, *, shared: str | None = None) -> Bench:
    from kernforge import pipeline  # noqa: PLC0415
    from kernforge.shared_store import SharedStore  # noqa: PLC0415

    second = SharedStore(shared, report.note) if shared else None
    project = pipeline.read_project(arguments.project)
    return pipeline.set_up(project, report, _brought(arguments), shared=second)


def _brought(arguments: argparse.Namespace) -> Brought:
    from kernforge.own import Brought  # noqa: PLC0415

    home, redist = arguments.cuda_home, arguments.cuda_redist
    return Brought(
        cuda_home=Path(home) if home else None,
        cuda_redist=redist or None,
        depends=dict(arguments.depends),
    )


def _refuse_errors(findings: Sequence[Finding]) -> None:
    wrong = [finding for finding in findings if finding.severity == "error"]
    if wrong:
        raise CheckError(
            f"{len(wrong)} findings: the artifact would not work everywhere that its name promises",
            hint="each finding above says how to mend it",
        )


# -- the command line's grammar ----------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Grammar of the command line."""
    top = argparse.ArgumentParser(
        prog="kernforge",
        description="GPU kernels for PyTorch, from the first line to production.",
        epilog=_EXIT_CODES + "\n 130  an interrupt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"kernforge {__version__}")
    verbs = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    verb = _verb(verbs, _new, "new", "write a kernel project that builds as it is", "my-kernel")
    verb.add_argument("name", help="lower-case letters, digits and dashes")
    verb.add_argument("--dir", type=Path, default=Path(), help="where to make it (default: here)")
    verb.add_argument(
        "--backends",
        nargs="+",
        default=["cuda", "cpu"],
        choices=["cuda", "cpu"],
        help="default: both",
    )
    verb.add_argument("--license", default="Apache-2.0", help="SPDX name (default: Apache-2.0)")

    verb = _verb(verbs, _variants, "variants", "list the variants of a project, with reasons", "")
    _project(verb)
    _toolchain(verb)

    verb = _verb(
        verbs,
        _lock,
        "lock-toolchain",
        "write kernforge.lock: pin compilers and headers",
        "--upgrade",
    )
    _project(verb)
    verb.add_argument("--cuda", action="append", default=[], help="also lock this CUDA, as 13.2")
    verb.add_argument("--torch", action="append", default=[], help="also lock this torch, as 2.13")
    _toolchain(verb)
    verb.add_argument("--upgrade", action="store_true", help="take the newest of everything")

    verb = _verb(
        verbs,
        _build,
        "build",
        "build variants of a project and check them",
        "--variant 'torch-stable-abi*-cpu-*'",
    )
    _project(verb)
    verb.add_argument(
        "--variant", action="append", default=[], help="a name or a pattern; may be repeated"
    )
    verb.add_argument(
        "--arch", action="append", default=[], help="only for this GPU, as 9.0; may be repeated"
    )
    _toolchain(verb)
    verb.add_argument("--out", type=Path, help="where the variants go (default: PROJECT/build)")
    verb.add_argument(
        "--jobs", type=_positive, default=os.cpu_count() or 1, help="default: as many as cores"
    )
    verb.add_argument(
        "--memory",
        type=_size,
        metavar="SIZE",
        help="what all actions together may take, as 16GB (default: what the machine has left)",
    )
    verb.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run the actions on the workers of this Dask scheduler, as tcp://farm:8786",
    )
    verb.add_argument(
        "--shared-store",
        metavar="URL",
        default=os.environ.get("KERNFORGE_SHARED_STORE"),
        help="look for results here too, and put new ones here: any fsspec URL, as file:///mnt/farm "
        "or s3://bucket/prefix (default: KERNFORGE_SHARED_STORE)",
    )
    verb.add_argument("--dry-run", action="store_true", help="show the graph of actions, run none")
    verb.add_argument("--locked", action="store_true", help="refuse to change kernforge.lock")
    verb.add_argument("--no-check", action="store_true", help="leave out the checks at the end")
    _sandbox(verb)

    verb = _verb(verbs, _check, "check", "check built variants against what they promise", "build")
    verb.add_argument(
        "dir",
        type=Path,
        nargs="?",
        default=Path("build"),
        help="a variant, or a directory of variants (default: build)",
    )

    _reproduce_verb(verbs)

    verb = _verb(
        verbs,
        _publish,
        "publish",
        "publish a project's built variants to a registry",
        "--registry ~/registry --repo-id me/my-kernel",
    )
    _project(verb)
    verb.add_argument(
        "--registry", help="directory or URL (default: KERNFORGE_REGISTRY, else the user's own)"
    )
    verb.add_argument("--repo-id", help="owner/name (default: [general.hub] repo-id)")
    verb.add_argument("--version", help="X.Y.Z (default: the git tag here, else the next patch)")
    verb.add_argument("--build", type=Path, help="directory of variants (default: PROJECT/build)")

    verb = _verb(
        verbs, _cache, "cache", "show what the store holds, and make it smaller", "--trim 10GB"
    )
    change = verb.add_mutually_exclusive_group()
    change.add_argument(
        "--trim",
        type=_size,
        metavar="SIZE",
        help="take away what was not used for longest, until the rest fits",
    )
    change.add_argument(
        "--clear", metavar="SHELF", help="take away a whole shelf: toolchains, actions or findings"
    )

    verb = _verb(verbs, _migrate, "migrate", "rewrite an older build.toml to edition 5", "")
    _project(verb)

    verb = _verb(verbs, _schema, "schema", "print build.toml's JSON schema", "--out schema.json")
    verb.add_argument("--out", type=Path, help="write it to this file")
    return top


def _reproduce_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    verb = _verb(
        verbs,
        _reproduce,
        "reproduce",
        "build variants again from what they say of themselves, and compare",
        "build --source .",
    )
    verb.add_argument("what", help="a variant, a directory of variants, or owner/name")
    verb.add_argument(
        "--source", type=Path, help="checkout with the sources (default: the repository they name)"
    )
    verb.add_argument("--variant", default="*", help="a name or a pattern (default: all)")
    verb.add_argument(
        "--registry", help="directory or URL (default: KERNFORGE_REGISTRY, else the user's own)"
    )
    verb.add_argument("--version", default="", help="of owner/name (default: the newest)")
    verb.add_argument(
        "--jobs", type=_positive, default=os.cpu_count() or 1, help="default: as many as cores"
    )
    _sandbox(verb)


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    run: Callable[[argparse.Namespace, Report], None],
    name: str,
    summary: str,
    example: str,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example: {' '.join(filter(None, ('kernforge', name, example)))}",
    )
    verb.set_defaults(verb=run)
    verb.add_argument("--json", action="store_true", help="print the result as one JSON document")
    verb.add_argument("--quiet", action="store_true", help="leave out progress and notes")
    return verb


def _project(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "project", type=Path, nargs="?", default=Path(), help="the project (default: here)"
    )


def _toolchain(verb: argparse.ArgumentParser) -> None:
    """Options for what the package index does not carry."""
    verb.add_argument(
        "--cuda-home",
        metavar="DIR",
        default=os.environ.get("KERNFORGE_CUDA_HOME"),
        help="an installed CUDA toolkit to build its version with (default: KERNFORGE_CUDA_HOME)",
    )
    verb.add_argument(
        "--cuda-redist",
        metavar="URL",
        default=os.environ.get("KERNFORGE_CUDA_REDIST"),
        help="where NVIDIA's redistrib_*.json and archives lie, for CUDA before 13 "
        "(default: KERNFORGE_CUDA_REDIST)",
    )
    source = os.environ.get("CUTLASS_SRC_DIR")
    verb.add_argument(
        "--depends",
        metavar="NAME=PATH",
        action="append",
        type=_named_path,
        default=[("", Path(source))] if source else [],
        help="a checkout or an archive of a dependency of build.toml, as cutlass_4_0=PATH "
        "(default: CUTLASS_SRC_DIR for every CUTLASS)",
    )


def _named_path(text: str) -> tuple[str, Path]:
    name, equals, place = text.partition("=")
    if not equals or not name or not place:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, Path(place)


def _size(text: str) -> int:
    from kernforge.memory import parse_size  # noqa: PLC0415

    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _sandbox(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--sandbox",
        choices=("required", "auto", "off"),
        default="auto",
        help="keep actions to their inputs: always, where this machine can (default), or never",
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)
