# SPDX-License-Identifier: Apache-2.0
"""A real farm of Dask's own processes on this machine, each worker with a store of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from support import processes

SRC = Path(__file__).parents[2] / "src"


class Cluster:
    """A scheduler and workers on the loopback; workers are processes that can be killed."""

    def __init__(
        self,
        root: Path,
        toolchains: Path,
        *,
        protocol: str = "tcp",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.root, self.toolchains, self.env = root, toolchains, dict(env or {})
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        root.mkdir(parents=True)
        toolchains.mkdir(parents=True, exist_ok=True)  # a new machine has none
        self.file = root / "scheduler.json"
        self.scheduler = self._start(
            *("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            *("--protocol", protocol, "--scheduler-file", str(self.file)),
        )
        wait_for(self._written, "the scheduler")

    def _written(self) -> bool:
        # The scheduler makes the file first and fills it then.
        return self.file.is_file() and self.file.read_text().rstrip().endswith("}")

    @property
    def address(self) -> str:
        return json.loads(self.file.read_text())["address"]

    def add(self, name: str) -> None:
        home = self.root / name
        (home / "store").mkdir(parents=True)
        (home / "store" / "toolchains").symlink_to(self.toolchains)
        self.workers[name] = self._start(
            *("worker", self.address, "--preload", "kernforge.builder.farm", "--name", name),
            *("--nthreads", "1", "--no-nanny", "--no-dashboard"),
            *("--local-directory", str(home / "dask")),
            home=home,
        )

    def kill(self, name: str) -> None:
        self.workers[name].send_signal(signal.SIGKILL)
        self.workers[name].wait()

    def log(self) -> str:
        return (self.root / "log.txt").read_text()

    def close(self) -> None:
        for process in (*self.workers.values(), self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def _start(self, *arguments: str, home: Path | None = None) -> subprocess.Popen[bytes]:
        paths = [str(SRC), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "KERNFORGE_HOME": str(home)}
        env.pop("KERNFORGE_SHARED_STORE", None)
        env |= {"KERNFORGE_STORE_TRUST": "all-writers", **self.env}
        argv = [sys.executable, "-m", "dask", *arguments]
        with (self.root / "log.txt").open("ab") as log:
            return processes.start(argv, env=env, stdout=log, stderr=log)


def wait_for(condition, what: str, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
