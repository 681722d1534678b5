# SPDX-License-Identifier: Apache-2.0
"""Virtual environments that have what their user installed and nothing else, made in a second.

``pip install`` in one is a real installation: uv resolves and installs wheels. kernforge's wheel is
built from this tree; the others are made again from the packages of the environment that runs the
tests, once for each version, so no index is asked, and what is not installed there cannot be
installed here.

As a program, ``python fresh_venv.py VENV KEPT TREE_WHEEL ARGUMENTS`` is the ``pip`` of such an
environment.
"""

import fcntl
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

if __name__ != "__main__":
    from support.fork_server import ForkServer, stand_in

ROOT = Path(__file__).parents[2]
_LEFT_OUT = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


class FreshVenv:
    """A virtual environment without any package.

    Args:
        directory: a directory for it that does not exist, best on the disk of ``kept``.
        kept: directory for the wheels that outlive the tests.
        tree_wheel: the wheel of kernforge.
    """

    def __init__(self, directory: Path, kept: Path, tree_wheel: Path) -> None:
        self.directory, self._kept, self._tree_wheel = directory, kept, tree_wheel
        self._server: ForkServer | None = None
        _uv("venv", "--python", sys.executable, directory)

    @property
    def pip(self) -> list[str]:
        """The command that is its ``pip``."""
        words = (sys.executable, __file__, self.directory, self._kept, self._tree_wheel)
        return [str(word) for word in words]

    def install(self, *requirements: str) -> None:
        """``pip install``."""
        subprocess.run([*self.pip, "install", "--quiet", *requirements], check=True)

    def forked(self) -> dict[str, list[str]]:
        """Programs that import torch, with commands that fork them; none without torch."""
        packages = set(self.directory.glob("lib/python*/site-packages/*/__init__.py"))
        if not {"torch", "kernforge"} <= {path.parent.name for path in packages}:
            return {}
        if not self._server:
            self._server = ForkServer(self.directory / "bin" / "python", self.environ())
        python = stand_in(self._server.address)
        return {"python": python, "kernforge": [*python, "-m", "kernforge"]}

    def close(self) -> None:
        """End what forks."""
        if self._server:
            self._server.close()

    def environ(self, **added: str) -> dict[str, str]:
        """The variables of a shell in which it is activated, and nothing of the tests' own."""
        ours = Path(sys.executable).parent
        path = [p for p in os.environ["PATH"].split(os.pathsep) if Path(p) != ours]
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("KERNFORGE_", "PYTEST_", "UV_"))
            and k not in {"PYTHONPATH", "PYTHONHOME"}
        }
        return {
            **kept,
            "VIRTUAL_ENV": str(self.directory),
            "PATH": os.pathsep.join([str(self.directory / "bin"), *path]),
            **added,
        }


def build_tree_wheel(directory: Path) -> Path:
    """The wheel of kernforge from this tree."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = directory.glob("kernforge-*.whl")
    return wheel


def _pip(venv: Path, kept: Path, tree_wheel: Path, command: str, *arguments: str) -> int:
    assert command == "install", f"pip {command}"
    wheels = kept / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    closure = _closure(arguments, tree_wheel)
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for found in closure:
            _wheel(found, wheels)
    places = [f"--find-links={place}" for place in (wheels, tree_wheel.parent)]
    where = () if "--target" in arguments else ("--python", venv)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as versions:
        # Of these: tests of another environment kept wheels of other versions.
        versions.writelines(f"{found.metadata['Name']}=={found.version}\n" for found in closure)
        versions.flush()
        return _uv(
            *("pip", "install", *where, "--no-index", *places, "--constraints", versions.name),
            *("--refresh-package", "kernforge", *arguments),
            cache=kept / "uv",
        )


def _uv(*argv: str | Path, cache: Path | None = None) -> int:
    env = {**os.environ, "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never"}
    env |= {"UV_CACHE_DIR": str(cache)} if cache else {}
    # What installs says what it does on standard error; pip's users see nothing of uv.
    done = subprocess.run(
        [sys.executable, "-m", "uv", "--quiet", *map(str, argv)], env=env, check=False
    )
    return done.returncode


def _closure(words: tuple[str, ...], tree_wheel: Path) -> list[importlib.metadata.Distribution]:
    """The installed distributions that requirements need; what is not installed is left out."""
    found: dict[str, importlib.metadata.Distribution] = {}
    seen, todo = set(), [(r, "") for r in map(_requirement, words) if r]
    while todo:
        requirement, extra_of_parent = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra_of_parent}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name == "kernforge":
                inside = f"kernforge-{tree_wheel.name.split('-')[1]}.dist-info/"
                metadata = importlib.metadata.PathDistribution(zipfile.Path(tree_wheel, inside))
            else:
                try:
                    metadata = found[name] = importlib.metadata.distribution(name)
                except importlib.metadata.PackageNotFoundError:
                    continue
            todo += [(Requirement(text), extra) for text in metadata.requires or ()]
    return list(found.values())


def _requirement(word: str) -> Requirement | None:
    try:
        return None if word.startswith("-") or word.endswith(".whl") else Requirement(word)
    except InvalidRequirement:
        return None


def _wheel(found: importlib.metadata.Distribution, wheels: Path) -> None:
    """Write the wheel that a distribution was installed from, unless it is there."""
    tags = [
        line.removeprefix("Tag: ").split("-")
        for line in (found.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag: ")
    ]
    tag = "-".join(".".join(dict.fromkeys(column)) for column in zip(*tags, strict=True))
    stem = f"{canonicalize_name(found.metadata['Name']).replace('-', '_')}-{found.version}"
    target = wheels / f"{stem}-{tag}.whl"
    if target.exists():
        return
    record, inside = [], ""
    making = target.with_suffix(".part")
    with zipfile.ZipFile(making, "w", zipfile.ZIP_STORED) as archive:
        for file in found.files or ():
            path, place = file.as_posix(), Path(str(found.locate_file(file)))
            if path.startswith("..") or "__pycache__" in path or not place.is_file():
                continue
            if path.count("/") == 1 and file.parent.name.endswith(".dist-info"):
                inside = file.parent.as_posix()
                if file.name in _LEFT_OUT:
                    continue
            archive.write(place, path)
            record.append(path)
            if path.endswith(".py") and (code := _bytecode(place)):
                compiled = Path(importlib.util.cache_from_source(path)).as_posix()
                archive.writestr(compiled, code)
                record.append(compiled)
        archive.writestr(f"{inside}/RECORD", "".join(f"{path},,\n" for path in record))
    making.rename(target)


def _bytecode(source: Path) -> bytes | None:
    """The bytecode of a module for any time of its source, so that no import compiles it."""
    try:
        code = Path(importlib.util.cache_from_source(str(source))).read_bytes()
    except FileNotFoundError:
        return None
    unchecked = (1).to_bytes(4, "little")
    return code[:4] + unchecked + importlib.util.source_hash(source.read_bytes()) + code[16:]


if __name__ == "__main__":
    sys.exit(_pip(*map(Path, sys.argv[1:4]), *sys.argv[4:]))
