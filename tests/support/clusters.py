# SPDX-License-Identifier: Apache-2.0
"""A real Dask cluster of processes on this machine, each worker with a store of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from support import processes

SRC = Path(__file__).parents[2] / "src"


class Cluster:
    """A scheduler and workers; workers are processes that can be killed."""

    def __init__(self, root: Path, toolchains: Path) -> None:
        self.root, self.toolchains = root, toolchains
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        root.mkdir(parents=True)
        self.file = root / "scheduler.json"
        self.scheduler = self._start(
            "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file)
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
        self.workers[name] = self._start(
            *("worker", self.address, "--name", name, "--nthreads", "1", "--no-nanny"),
            *("--no-dashboard", "--local-directory", str(self.home(name) / "dask")),
            *(("--resources", ",".join(options)) if options else ()),
            home=self.home(name),
        )

    def kill(self, name: str) -> None:
        self.workers[name].send_signal(signal.SIGKILL)
        self.workers[name].wait()

    def close(self) -> None:
        for process in (*self.workers.values(), self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def _start(self, *arguments: str, home: Path | None = None) -> subprocess.Popen[bytes]:
        paths = [str(SRC), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "KERNFORGE_HOME": str(home)}
        env.pop("KERNFORGE_SHARED_STORE", None)
        env["KERNFORGE_STORE_TRUST"] = "all-writers"
        argv = [sys.executable, "-m", "dask", *arguments]
        with (self.root / "log.txt").open("ab") as log:
            return processes.start(argv, env=env, stdout=log, stderr=log)


def wait_for(condition, what: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
