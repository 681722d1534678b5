# SPDX-License-Identifier: Apache-2.0
"""How often what may not happen happened: kills, races, flips, mutations, drops; each must be 0.

    PYTHONPATH=src:tests python benchmarks/bench_attacks.py                  # some minutes
    PYTHONPATH=src:tests python benchmarks/bench_attacks.py --only flips

- kills: a process that writes the store, a registry, a lock file or a download's target is killed
  (SIGKILL) at a random moment; then the next run must find all whole, and leave nothing behind.
- races: processes write one file, or make and take away the same trees of a cold store, at once.
- flips: one bit of a variant's file, of a signed document or its signature, or of an object in the
  shared store is changed; it must be refused.
- mutations: the documents of ``scripts/run_fuzz.py``, from its result.
- drops: a hub's connections break off or lie, half of them; each fetch must end whole or with an
  error of ours, and in the end whole.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "src")]

from attacks_on_us import test_killed_at_any_moment as killing  # noqa: E402
from machine import describe  # noqa: E402
from support.hub_server import HubServer  # noqa: E402

from kernforge.artifact.integrity import digest_tree, verify_tree  # noqa: E402
from kernforge.artifact.metadata import FILE, Metadata  # noqa: E402
from kernforge.errors import KernforgeError  # noqa: E402
from kernforge.registry.hub import HubRegistry  # noqa: E402
from kernforge.registry.hub_client import HubClient  # noqa: E402
from kernforge.registry.hub_endpoint import HubEndpoint  # noqa: E402
from kernforge.store.local import Store  # noqa: E402
from kernforge.store.remote import SharedStore  # noqa: E402
from kernforge.system import files  # noqa: E402
from kernforge.trust import signature  # noqa: E402
from kernforge.trust.builders import Builders  # noqa: E402
from kernforge.trust.policy import KeySigner, public_key  # noqa: E402
from kernforge.trust.signing import open_key  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"
KILLS, FLIPS, DROPS, WRITERS, TURNS = 100, 1000, 200, 16, 200
_RUN_EVERY = 10  # kills
_CHANCE = random.Random(14)  # noqa: S311 - the same run each time


def failed(act: Callable[[], object]) -> int:
    """1 where something fails, told on stderr."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - this is what is counted
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


# -- kills -----------------------------------------------------------------------------------


def kills(place: Path) -> dict[str, Any]:
    """Kill writers; after each kill the next run must finish, and at the end nothing is left."""
    found: dict[str, Any] = {}
    for name, (work, finish) in killing.PLACES.items():
        hub = HubServer()
        hub.add(
            killing.REPO, "v1", {f"build/torch-cpu/{n}": data for n, data in killing.FILES.items()}
        )
        here = place / name
        here.mkdir()
        (here / "hub").write_text(hub.url)
        left = failures = 0
        for number in range(KILLS):
            killing.killed(work, here, number)
            left += bool(killing.leavings(here))
            if (number + 1) % _RUN_EVERY == 0:
                failures += failed(lambda here=here, finish=finish: finish(here))
        young = [path for path in killing.leavings(here) if not killing._old_only(path)]  # noqa: SLF001
        found[name] = {"tries": KILLS, "left_something": left, "failures": failures + len(young)}
        hub.close()
    return found


# -- races -----------------------------------------------------------------------------------


def _write_file(path: Path, number: int) -> None:
    for turn in range(TURNS):
        files.write_atomic(path, f"{number}-{turn}\n" * 1000)
        if len(set(path.read_text().split())) != 1:
            os._exit(1)


def _use_store(root: Path, _number: int) -> None:
    for turn in range(TURNS // 4):
        store = Store(root)
        with store.lease():
            tree = store.tree("things", f"{turn % 20:064x}", killing.fill)
            sizes = [path.stat().st_size for path in tree.rglob("file")]
            if sizes != [20_000] * 20:
                os._exit(1)


def races(place: Path) -> dict[str, Any]:
    """Let processes do the same at once."""
    found = {}
    for name, act, target in (
        ("one file", _write_file, place / "file"),
        ("a cold store", _use_store, place / "store"),
    ):
        context = multiprocessing.get_context("fork")
        racers = [context.Process(target=act, args=(target, n)) for n in range(WRITERS)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        turns = TURNS if act is _write_file else TURNS // 4
        bad = sum(racer.exitcode != 0 for racer in racers)
        found[name] = {"tries": WRITERS * turns, "processes": WRITERS, "failures": bad}
    return found


# -- flips -----------------------------------------------------------------------------------


def flipped(data: bytes) -> bytes:
    """The bytes with one bit changed."""
    changed = bytearray(data)
    changed[_CHANCE.randrange(len(changed))] ^= 1 << _CHANCE.randrange(8)
    return bytes(changed)


def believed(act: Callable[[], object]) -> int:
    """1 where a changed thing is taken; anything but an error of ours is one more failure."""
    try:
        return int(act() is not False)
    except KernforgeError:
        return 0


def flips(place: Path) -> dict[str, Any]:
    """Change one bit at a time."""
    tree = place / "variant"
    tree.mkdir()
    (tree / "__init__.py").write_text("VALUE = 1\n" * 50)
    (tree / "_toy.so").write_bytes(_CHANCE.randbytes(100_000))
    digest = digest_tree(tree)
    verify_tree(tree, digest)
    in_files = 0
    for number in range(FLIPS):
        path = tree / ("_toy.so" if number % 2 else "__init__.py")
        whole = path.read_bytes()
        path.write_bytes(flipped(whole))
        in_files += believed(lambda: verify_tree(tree, digest))
        path.write_bytes(whole)
    private, public = signature.new_key(None)
    signers = (KeySigner(name="key", key=public_key(public.decode(), "here")),)
    metadata = Metadata(
        name="toy", id="_toy_cpu_a", version=1, license="MIT", backend="cpu", digest=digest
    ).to_json()
    bundle = signature.sign_with_key(metadata, private, None)
    signature.verify(metadata, bundle, signers)
    in_documents = sum(
        believed(lambda: signature.verify(flipped(metadata), bundle, signers)) for _ in range(FLIPS)
    )
    return {
        "a file of a variant": {"tries": FLIPS, "failures": in_files},
        f"a signed {FILE}": {"tries": FLIPS, "failures": in_documents},
        "an object of the shared store": _objects(place, private, signers),
    }


def _objects(place: Path, private: bytes, signers: tuple[KeySigner, ...]) -> dict[str, int]:
    key_file = place / "key.pem"
    key_file.write_bytes(private)
    writers = Builders(keys=signers, key=open_key(key_file, lambda: ""))
    shared = SharedStore((place / "shared").as_uri(), lambda _text: None, writers)
    key = "0" * 64
    source = place / "source"
    killing.fill(source)
    shared.push("things", key, source)
    (path,) = (place / "shared").rglob("*.tree")
    whole, bad = path.read_bytes(), 0
    for number in range(FLIPS):
        path.write_bytes(flipped(whole))
        into = place / "into" / f"{number}"
        into.mkdir(parents=True)
        # A changed object may be read only where what comes out is what went in.
        if shared.fetch("things", key, into) and digest_tree(into) != digest_tree(source):
            bad += 1
        shutil.rmtree(into)
    return {"tries": FLIPS, "failures": bad}


# -- mutations and drops ---------------------------------------------------------------------


def mutations(_place: Path) -> dict[str, Any]:
    """What the long run of the fuzzer came to."""
    kinds = json.loads((RESULTS / "fuzz.json").read_text())["kinds"]
    return {
        name: {
            "tries": kind["documents"],
            "failures": kind["untyped"] + kind["hangs"] + kind["memory"],
        }
        for name, kind in kinds.items()
    }


def drops(place: Path) -> dict[str, Any]:
    """Fetch from a hub whose connections break off, are not answered, or lie."""
    hub = HubServer()
    hub.add(killing.REPO, "v1", {f"build/torch-cpu/{n}": d for n, d in killing.FILES.items()})
    whole = refused = bad = 0
    for number in range(DROPS):
        for pattern in ("/refs", "/tree/", "/resolve/", "/cdn/"):
            for kind in ("cut", "drop", "lie", 500, 503):
                if _CHANCE.random() < 0.25:  # noqa: PLR2004 - a quarter of them
                    hub.fault(pattern, kind, _CHANCE.randrange(1, 4))
        here = place / f"{number}"
        endpoint = HubEndpoint(url=hub.url, cache=here, offline=False, own_token=False)
        for last in (False, True):
            registry = HubRegistry(endpoint, HubClient(endpoint, wait=lambda _seconds: None))
            try:
                if last:
                    hub._faults.clear()  # noqa: SLF001 - the network is well again
                path = registry.fetch(
                    killing.REPO, registry.ref(killing.REPO, "v1") or "", "torch-cpu"
                )
                whole += 1
                bad += {p.name: p.read_bytes() for p in path.iterdir()} != killing.FILES
                break
            except KernforgeError:
                refused += 1
                bad += last
        shutil.rmtree(here)
    hub.close()
    return {
        "fetches": {"tries": DROPS, "ended_whole": whole, "with_an_error": refused, "failures": bad}
    }


def table(result: dict[str, Any]) -> dict[str, Any]:
    """The table of the page of results."""
    rows = [
        [section, name, f"{part['tries']:,}", part["failures"]]
        for section in SECTIONS
        for name, part in result.get(section, {}).items()
        if section != "mutations"
    ]
    documents = sum(part["tries"] for part in result.get("mutations", {}).values())
    bad = sum(part["failures"] for part in result.get("mutations", {}).values())
    kinds = f"{len(result.get('mutations', {}))} kinds of documents"
    return {
        "title": "What may not happen",
        "head": ["what is done", "to what", "times", "failures"],
        "rows": [*rows, ["mutations", kinds, f"{documents:,}", bad]],
        "note": "A failure is something half, wrong, left behind, or an error that is not ours. A "
        "drop is an answer that is cut off, missing, changed or an error; each fetch ended whole in "
        "the end.",
    }


SECTIONS = {"kills": kills, "races": races, "flips": flips, "drops": drops, "mutations": mutations}


def main() -> int:
    """Measure all or some sections, and write them; the code is 1 if anything failed."""
    parser = argparse.ArgumentParser(description="count what may not happen")
    parser.add_argument("--only", action="append", choices=list(SECTIONS), help="only this section")
    chosen = parser.parse_args().only or list(SECTIONS)
    out = RESULTS / "attacks.json"
    result = json.loads(out.read_text()) if out.is_file() else {}
    result["conditions"] = describe("kernforge", "huggingface-hub", "cryptography")
    shm = Path("/dev/shm")  # noqa: S108 - thousands of small trees
    for name in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as place:
            result[name] = SECTIONS[name](Path(place))
        print(f"{name}: {result[name]} ({time.monotonic() - began:.0f} s)", file=sys.stderr)
        result["table"] = table(result)
        out.write_text(json.dumps(result, indent=1) + "\n")
    figures = [part for name in SECTIONS for part in result.get(name, {}).values()]
    return 1 if any(part["failures"] for part in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
