# SPDX-License-Identifier: Apache-2.0
"""``kernforge serve`` in a process of its own."""

import contextlib
import hashlib
import http.client
import json
import subprocess
import sys
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


@contextlib.contextmanager
def served(registry, log: Path, *options, env=None):
    """The server of a registry for as long as the context lasts.

    Args:
        log: file of its output.
    """
    argv = [sys.executable, "-m", "kernforge", "serve", "--json", registry, *options, "--port"]

    def start(port):
        with log.open("wb") as output:
            return processes.start([*argv, port], stdout=output, stderr=output, env=env)

    process, port = processes.listening(start)
    with process:
        server = Served(f"http://127.0.0.1:{port}", log, process)
        assert server.ask("/healthz").status == 200, log.read_text()
        try:
            yield server
        finally:
            process.terminate()
            process.wait(60)
