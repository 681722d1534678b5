# SPDX-License-Identifier: Apache-2.0
"""What verification costs of a 50 MB variant, beside the hub client's, in one run.

Each measurement is the best of several, all of them interleaved, since other programs share the
machine; processor time is told beside the clock's. The hub client verifies with a Sigstore
identity only; both verify the same bundle against the same instance, made here, so that neither
waits for a network.

    PYTHONPATH=src:tests python benchmarks/bench_verify.py
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from machine import describe
from sigstore.models import TrustedRoot
from sigstore.verify import Verifier
from support.signatures import IDENTITY, ISSUER, SOURCE, Sigstore

from kernels import verify as theirs
from kernforge.artifact.integrity import digest_tree, verify_tree
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.trust import signature
from kernforge.trust.policy import IdentitySigner, KeySigner, public_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernforge.trust.policy import Signer

MB = 1_000_000
SIZES = {"one file": (50,), "eight files": (6.25,) * 8}
REPEAT = 40
OUT = Path(__file__).parent / "results" / "verify.json"


def variant(root: Path, sizes: tuple[float, ...]) -> Path:
    """A variant of so many megabytes a file."""
    root.mkdir()
    (root / "__init__.py").write_text("")
    for number, size in enumerate(sizes):
        (root / f"lib{number}.so").write_bytes(os.urandom(int(size * MB)))
    metadata = Metadata(
        name="toy",
        id="_toy_cpu_aaaaaaa",
        version=1,
        license="MIT",
        backend="cpu",
        digest=digest_tree(root),
    )
    (root / FILE).write_bytes(metadata.to_json())
    return root


def ours(root: Path, bundle: Path, signer: Signer) -> None:
    """What a load does where a policy demands a signature."""
    document = (root / FILE).read_bytes()
    signature.verify(document, bundle.read_bytes(), [signer])
    metadata = Metadata.from_json(document)
    if metadata.digest is None:
        raise SystemExit("the variant has no digest")
    verify_tree(root, metadata.digest)


def yardstick(root: Path) -> None:
    """The files' bytes, already in memory, through one SHA-256."""
    for data in _bytes(root):
        hashlib.sha256(data).digest()


_kept: dict[Path, list[bytes]] = {}


def _bytes(root: Path) -> list[bytes]:
    if root not in _kept:
        _kept[root] = [path.read_bytes() for path in root.glob("*.so")]
    return _kept[root]


def best(works: dict[str, Callable[[], None]]) -> dict[str, dict[str, float]]:
    """Milliseconds of each by the clock and of processor time, the best of several rounds."""
    found = {name: {"wall": float("inf"), "cpu": float("inf")} for name in works}
    for _ in range(REPEAT):
        for name, work in works.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            for kind, seconds in taken.items():
                found[name][kind] = min(found[name][kind], round(seconds * 1000, 2))
    return found


def importing(module: str) -> float:
    """Milliseconds of processor time that a fresh process imports a module, the best of five."""
    code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    return round(min(float(run.stdout) for run in runs) * 1000, 1)


def measure(root: Path, instance: Sigstore, trusted: Path) -> dict[str, dict[str, float]]:
    """All ways to verify one variant."""
    private, public = signature.new_key(None)
    key = KeySigner(name="key", key=public_key(public.decode(), "key"))
    identity = IdentitySigner(
        name="identity",
        issuer=ISSUER,
        identities=(IDENTITY,),
        source_repository=SOURCE,
        trusted_root=str(trusted),
    )
    document = (root / FILE).read_bytes()
    by_key, by_identity = root.parent / "key.sigstore", root / SIGNATURE
    by_key.write_bytes(signature.sign_with_key(document, private, None))
    by_identity.write_bytes(instance.sign(document))
    digest = Metadata.from_json(document).digest
    if digest is None:
        raise SystemExit("the variant has no digest")
    verifier = Verifier(trusted_root=TrustedRoot.from_file(str(trusted)))
    theirs.Verifier.production = lambda: verifier
    allowed = [theirs.policy.Identity(identity=IDENTITY, issuer=ISSUER)]

    def theirs_once() -> None:
        result = theirs.verify_variant(root, allowed)
        if not isinstance(result, theirs.VerificationResult.Success):
            raise SystemExit(f"kernels says {result}")

    return best(
        {
            "SHA-256 of the bytes": lambda: yardstick(root),
            "digest alone": lambda: verify_tree(root, digest),
            "key": lambda: ours(root, by_key, key),
            "identity": lambda: ours(root, by_identity, identity),
            "kernels": theirs_once,
        }
    )


def _cell(times: dict[str, float]) -> str:
    return f"{times['wall']:.0f} ms ({times['cpu']:.0f})"


def main() -> None:
    """Measure both layouts and the imports, and write the result."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        instance = Sigstore()
        (root / "trusted_root.json").write_text(json.dumps(instance.trusted_root()))
        found = {
            name: measure(variant(root / name, sizes), instance, root / "trusted_root.json")
            for name, sizes in SIZES.items()
        }
    imports = {
        "key": importing("cryptography.hazmat.primitives.asymmetric.ed25519"),
        "identity": importing("sigstore.verify"),
    }
    document = {
        "machine": describe("kernforge", "kernels", "cryptography", "sigstore"),
        "milliseconds": found,
        "import_milliseconds": imports,
        "table": {
            "title": "Verify a variant of 50 MB, files in the page cache",
            "head": ["what", *found, "once per process"],
            "rows": [
                [what, *(_cell(times[name]) for times in found.values()), once]
                for what, name, once in (
                    ("SHA-256 alone, bytes in memory, one thread", "SHA-256 of the bytes", "-"),
                    ("kernforge: digest", "digest alone", "-"),
                    ("kernforge: Ed25519 key + digest", "key", f"{imports['key']:.0f} ms"),
                    (
                        "kernforge: Sigstore identity + digest",
                        "identity",
                        f"{imports['identity']:.0f} ms",
                    ),
                    (
                        "kernels verify_variant: the same bundle",
                        "kernels",
                        f"{imports['identity']:.0f} ms",
                    ),
                )
            ],
            "note": "Wall time (processor time), minimum of several interleaved rounds, without a "
            "network. The last column is the processor time of importing the verifying package.",
        },
    }
    OUT.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(document["table"], indent=2))


if __name__ == "__main__":
    main()
