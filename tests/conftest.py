# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests of every tier; ``support`` has what they are."""

import contextlib
import functools
import itertools
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from support import oci_registries, processes, static_server, variants
from support.fork_server import ForkServer
from support.fresh_venv import FreshVenv, build_tree_wheel
from support.hub_server import HubServer
from support.index_server import IndexServer

from kernforge.registry.directory import DirectoryRegistry
from kernforge.toolchain.index.http import Transport

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's, which programs of tests would inherit

UNIQUE_IDS = (f"{number:07x}" for number in itertools.count())

# Every core has a worker of pytest. It is set before torch is imported, and programs inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def leaves_no_process():
    """Whatever a test starts dies with it, also when the test fails.

    Processes of the fixtures of a module or a session run before this fixture begins.
    """
    before = processes.children()
    yield
    processes.kill_trees(processes.children() - before)


@pytest.fixture
def index_server(tmp_path):
    server = IndexServer(tmp_path / "index")
    server.root.mkdir()
    yield server
    server.close()


@pytest.fixture
def transport(index_server):
    found = Transport(index_server.config)
    yield found
    found.close()


class Progress:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.fetched: dict[str, int] = {}

    def fetching(self, what, total):
        self.fetched[what] = 0

        def advance(count):
            self.fetched[what] += count

        return advance

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def progress():
    return Progress()


@pytest.fixture
def hub():
    """A Hugging Face hub on this machine."""
    server = HubServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def _bucket_server():
    pytest.importorskip("obstore")
    bucket_server = pytest.importorskip("support.bucket_server")
    with contextlib.closing(bucket_server.BucketServer()) as server:
        yield server


@pytest.fixture
def buckets(_bucket_server, tmp_path, monkeypatch):
    """A server of buckets on this machine, whose variables are set."""
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    for name, value in _bucket_server.variables.items():
        monkeypatch.setenv(name, value)
    _bucket_server.requests.clear()
    yield _bucket_server
    _bucket_server.before = _bucket_server.after = lambda _number, _request: None


@pytest.fixture
def bucket(buckets):
    """The URL of a registry in a new bucket."""
    return f"s3://{buckets.add()}/our/kernels"


@pytest.fixture
def web_server(tmp_path):
    """A function that shows a directory by nginx."""
    if not static_server.NGINX:
        pytest.skip("needs Debian's nginx")
    with contextlib.ExitStack() as stack:
        numbers = itertools.count()

        def show(root):
            server = static_server.StaticServer(root, tmp_path / f"web{next(numbers)}")
            stack.callback(server.close)
            return server

        yield show


@pytest.fixture
def oci_registry(tmp_path, monkeypatch):
    """A function that starts Debian's OCI registry, open or with tokens; returns its location."""
    if not oci_registries.DOCKER_REGISTRY:
        pytest.skip("needs Debian's docker-registry")
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", "")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    with contextlib.ExitStack() as stack:

        def start(*, tokens=False):
            home = tmp_path / "registry-server"
            server = oci_registries.token_server(home) if tokens else contextlib.nullcontext("")
            auth = stack.enter_context(server)
            host = stack.enter_context(oci_registries.docker_registry(home, auth))
            if tokens:
                oci_registries.write_login(tmp_path / "docker/config.json", host)
            return f"oci+http://{host}/team/kernels"

        yield start


@pytest.fixture
def usual_hub(hub, tmp_path, monkeypatch):
    """A hub that is asked where no registry is named, with a cache of its own."""
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "kernels"))
    monkeypatch.delenv("KERNFORGE_REGISTRY", raising=False)
    return hub


@pytest.fixture
def write_variant():
    """A function that lays out a variant of a pure Python kernel, digest and all."""
    return variants.write_variant


@pytest.fixture
def registry(tmp_path):
    """A registry in a directory."""
    return DirectoryRegistry(tmp_path / "registry")


@pytest.fixture
def build(tmp_path, write_variant):
    """A function that creates a build directory with one variant and an id of its own."""

    def make_build(**fields):
        unique = fields.pop("unique", None) or next(UNIQUE_IDS)
        directory = tmp_path / f"build-{unique}"
        write_variant(directory, unique=unique, **fields)
        return directory

    return make_build


@pytest.fixture(scope="session")
def fork_server():
    """Forks Python programs that find torch imported."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def fresh_venv(kept_home, tmp_path_factory):
    """A function that makes a virtual environment without packages, for who follows a page."""
    kept = kept_home / "installs"
    wheel = functools.cache(lambda: build_tree_wheel(tmp_path_factory.mktemp("wheel")))
    with contextlib.ExitStack() as stack:

        def make():
            kept.mkdir(parents=True, exist_ok=True)
            # On the disk of what is kept, whose files are linked.
            place = stack.enter_context(tempfile.TemporaryDirectory(dir=kept, prefix="venv-"))
            return stack.enter_context(
                contextlib.closing(FreshVenv(Path(place) / "venv", kept, wheel()))
            )

        yield make


@pytest.fixture(scope="session")
def forked(fork_server):
    """A function that runs ``python ARGUMENTS``, forked, and looks at its exit code."""

    def call(*arguments, expect=0, cwd=None, env=os.environ, **more):
        environment = {**env, **{name: str(more[name]) for name in more}}
        argv = [sys.executable, *map(str, arguments)]
        done = fork_server.run(argv, env=environment, cwd=cwd)
        assert expect in (None, done.returncode), done.stdout + done.stderr
        return done

    return call


@pytest.fixture(scope="session")
def kernforge_cli(kept_home, forked):
    """A function that runs ``kernforge ARGUMENTS``, forked, and looks at its exit code."""

    def call(*arguments, expect=0, home=kept_home, env=None, cwd=None):
        more = {"KERNFORGE_HOME": home, **(env or {})}
        return forked("-m", "kernforge", *arguments, expect=expect, cwd=cwd, **more)

    return call


@pytest.fixture(scope="session")
def kept_home():
    """A KERNFORGE_HOME that outlives the test run, so that toolchains are fetched once."""
    return Path(os.environ.get("KERNFORGE_TEST_HOME", Path.home() / ".cache" / "kernforge-tests"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the unit tests, and put them last: short ones fill the last minute of each worker."""
    unit = Path(__file__).parent / "unit"
    for item in items:
        if item.path.is_relative_to(unit):
            item.add_marker(pytest.mark.unit)
    items.sort(key=lambda item: item.get_closest_marker("unit") is not None)
