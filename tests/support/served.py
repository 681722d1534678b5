# SPDX-License-Identifier: Apache-2.0
"""``kernforge serve`` in a process of its own."""

import contextlib
import hashlib
import http.client
import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from support import processes


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self):
        return json.loads(self.body)


@dataclass
class Served:
    url: str
    log: Path
    process: subprocess.Popen

    def ask(self, path, *, method="GET", body=None, **headers) -> Answer:
        """One request, whose path and headers are sent as they are."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        with contextlib.closing(connection):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def lines(self):
        """The access log."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def publish(registry, repo_id, files, *refs):
    """A commit with some references."""
    tree = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    with registry.writing(repo_id):
        for path, data in files.items():
            registry.add_blob(repo_id, tree[path], data)
        commit = registry.add_snapshot(repo_id, tree)
        for name in refs:
            registry.set_ref(repo_id, name, commit)
    return commit


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def served(registry, log: Path, *options, env=None):
    """The server of a registry for as long as the context lasts.

    Args:
        log: file of its output.
    """
    port = free_port()
    argv = [sys.executable, "-m", "kernforge", "serve", "--json", registry, "--port", port]
    with (
        log.open("wb") as output,
        processes.start([*argv, *options], stdout=output, stderr=output, env=env) as process,
    ):
        server = Served(f"http://127.0.0.1:{port}", log, process)
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                if server.ask("/healthz").status == 200:
                    break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        try:
            yield server
        finally:
            process.terminate()
            process.wait(60)
