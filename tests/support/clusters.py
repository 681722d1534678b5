# SPDX-License-Identifier: Apache-2.0
"""A real Dask cluster of processes on this machine, each worker with a store of its own.

Plain connections on the loopback, or TLS with the certificates of a farm on all of its addresses.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from support import processes

from kernforge.build.cluster import client, network
from kernforge.errors import NetworkError
from kernforge.system.environment import Environment

FARM = ("kernforge", "farm")
SRC = Path(__file__).parents[2] / "src"


class Cluster:
    """A scheduler and workers; workers are processes that can be killed."""

    def __init__(self, root: Path, toolchains: Path, *, farm: Path | None = None) -> None:
        self.root, self.toolchains, self.farm = root, toolchains, farm
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        root.mkdir(parents=True)
        toolchains.mkdir(parents=True, exist_ok=True)  # a new machine has none
        self.file = root / "scheduler.json"
        if farm:
            options = ("--port", str(free_port()), "--", "--scheduler-file", str(self.file))
            self.scheduler = self._start_farm("scheduler", *options)
        else:
            self.scheduler = self._start(
                *("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
                *("--scheduler-file", str(self.file)),
            )
        wait_for(self._written, "the scheduler")

    def _written(self) -> bool:
        # The scheduler makes the file first and fills it then.
        return self.file.is_file() and self.file.read_text().rstrip().endswith("}")

    @property
    def address(self) -> str:
        return json.loads(self.file.read_text())["address"]

    def home(self, name: str) -> Path:
        return self.root / name

    def add(self, name: str, **resources: int) -> None:
        store = self.home(name) / "store"
        store.mkdir(parents=True)
        (store / "toolchains").symlink_to(self.toolchains)
        options = [f"{key}={value}" for key, value in resources.items()]
        common = (
            *("--name", name, "--nthreads", "1", "--no-nanny"),
            *("--local-directory", str(self.home(name) / "dask")),
            *(("--resources", ",".join(options)) if options else ()),
        )
        if self.farm:
            start = ("worker", "--scheduler", self.address, "--", *common)
            self.workers[name] = self._start_farm(*start, home=self.home(name))
        else:
            start = ("worker", self.address, "--no-dashboard", *common)
            self.workers[name] = self._start(*start, home=self.home(name))

    def wait_for_workers(self) -> None:
        """Wait until all that were added have joined: on a busy machine one may come very late."""
        wait_for(lambda: self._joined() == len(self.workers), "the workers")

    def _joined(self) -> int:
        access = network.access(Environment({"KERNFORGE_FARM": str(self.farm)}), "client")
        try:
            with contextlib.closing(client.connect(self.address, access)) as connected:
                return len(client.offers(connected))
        except (NetworkError, OSError):  # the scheduler is late, too
            return 0

    def kill(self, name: str) -> None:
        self.workers[name].send_signal(signal.SIGKILL)
        self.workers[name].wait()

    def close(self) -> None:
        for process in (*self.workers.values(), self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def _start_farm(self, *arguments: str, home: Path | None = None) -> subprocess.Popen[bytes]:
        action, *rest = arguments
        return self._start(action, "--dir", str(self.farm), *rest, home=home, module=FARM)

    def _start(
        self, *arguments: str, home: Path | None = None, module: tuple[str, ...] = ("dask",)
    ) -> subprocess.Popen[bytes]:
        paths = [str(SRC), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "KERNFORGE_HOME": str(home)}
        env.pop("KERNFORGE_SHARED_STORE", None)
        env["KERNFORGE_STORE_TRUST"] = "all-writers"
        argv = [sys.executable, "-m", *module, *arguments]
        with (self.root / "log.txt").open("ab") as log:
            return processes.start(argv, env=env, stdout=log, stderr=log)


def free_port() -> int:
    """A port below those that a kernel gives to who asks for any: no other program gets it meanwhile."""
    while True:
        port = secrets.choice(range(20_000, 32_000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


def wait_for(condition, what: str, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
