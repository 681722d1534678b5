# SPDX-License-Identifier: Apache-2.0
"""Requests, bytes and time of a load from each kind of registry, and the speed of ``serve``.

    python benchmarks/bench_registry.py     # needs the extras serve and objects, moto, kernels,
                                            # and nginx, docker-registry and ab of the system

One kernel is published to a directory and mirrored to the others. Each load is a new process that
has torch already, behind a meter of its connections; ``kernels`` loads from the same server as
kernforge. Writes benchmarks/results/registry.json and serve.json.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import bench_load
import boto3
from results import RESULTS, describe, write

from kernforge.publish.mirror import mirror
from kernforge.registry.api import open_registry
from kernforge.registry.directory import DirectoryRegistry

RUNS, ROUNDS = 7, 5
REPO, LARGE = bench_load.REPO, "bench/large"
BYTES, LARGE_BYTES = 4_000_000, 512_000_000
PACKAGE = bench_load.PACKAGE | {f"more{n}.py": f"NUMBER = {n}\n" * 50 for n in range(6)}
LOAD = """
import time
import torch

start = time.perf_counter()
from {client} import get_kernel
get_kernel("bench/small", version=1, trust_remote_code=True)
print(time.perf_counter() - start)
"""
NGINX = """
daemon off; worker_processes 1; pid {place}/nginx.pid; {user}
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; keepalive_requests 1000000;
  client_body_temp_path {place}/1; proxy_temp_path {place}/2; fastcgi_temp_path {place}/3;
  uwsgi_temp_path {place}/4; scgi_temp_path {place}/5;
  server {{ listen 127.0.0.1:{nginx}; root {place}/registry; }}
}}
"""
DOCKER = """
version: 0.1
log: {{level: error}}
http: {{addr: "127.0.0.1:{docker}"}}
storage: {{filesystem: {{rootdirectory: {place}/oci}}}}
"""
_REQUEST = re.compile(rb"^(?:GET|HEAD|POST) /", re.MULTILINE)


class Meter:
    """Forwards connections to a port; counts requests, and the bytes of the answers."""

    def __init__(self, to: int) -> None:
        self._to, self._lock = to, threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.requests = self.bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._to))
            for ends in ((client, server), (server, client)):
                pump = functools.partial(self._pump, *ends, asks=ends[0] is client)
                threading.Thread(target=pump, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, *, asks: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    self.requests += len(_REQUEST.findall(data)) if asks else 0
                    self.bytes += 0 if asks else len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def servers(place: Path) -> Iterator[dict[str, int]]:
    """The port of each server, once it is open."""
    with contextlib.ExitStack() as stack:
        names = ("nginx", "docker", "moto", "serve")
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        ports = {name: each.getsockname()[1] for name, each in zip(names, free, strict=True)}
    user = "user root;" if os.geteuid() == 0 else ""
    for name, text in (("nginx", NGINX), ("docker", DOCKER)):
        (place / name).write_text(text.format(place=place, user=user, **ports))
    argv = {
        "nginx": [shutil.which("nginx") or "/usr/sbin/nginx", "-c", f"{place}/nginx"],
        "docker": ["docker-registry", "serve", f"{place}/docker"],
        "moto": [sys.executable, "-m", "moto.server", "-p", str(ports["moto"])],
        "serve": [sys.executable, "-m", "kernforge", "serve", "-q", f"{place}/registry"],
    }
    argv["serve"] += ["--trusted", "*", "--port", str(ports["serve"])]
    with contextlib.ExitStack() as stack:
        for name, port in ports.items():
            null = subprocess.DEVNULL
            process = subprocess.Popen(argv[name], stdout=null, stderr=null)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            while process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
        yield ports


def load(client: str, environment: dict[str, str], meter: Meter) -> list[float]:
    """Requests, bytes and seconds of one load in a new process."""
    before = meter.requests, meter.bytes
    argv = [sys.executable, "-c", LOAD.format(client=client)]
    printed = subprocess.check_output(argv, env={**os.environ, **environment}, text=True)
    counts = (meter.requests - before[0], meter.bytes - before[1])
    return [*counts, float(printed.splitlines()[-1])]


def measure(contenders: dict[str, tuple[str, dict[str, str], Meter]]) -> list[list[str]]:
    """A row for each contender: cold and warm loads in turns, medians."""
    found: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for _ in range(RUNS):
        for name, (client, environment, meter) in contenders.items():
            with tempfile.TemporaryDirectory() as home:
                caches = {"KERNFORGE_HOME": home, "HF_HOME": home}
                both = [load(client, {**environment, **caches}, meter) for _ in range(2)]
                found[name].append([*both[0], *both[1]])
    rows = []
    for name, samples in found.items():
        asked, sent, took, asked_again, _, took_again = map(
            statistics.median, zip(*samples, strict=True)
        )
        cold = [f"{asked:.0f}", f"{sent / 1e3:,.0f} kB", f"{took * 1e3:.0f} ms"]
        rows.append([name, *cold, f"{asked_again:.0f}", f"{took_again * 1e3:.0f} ms"])
    return rows


def speed(urls: Sequence[str], options: str, line: str) -> list[float]:
    """Medians of a figure of ab for each URL, in turns."""
    found: list[list[float]] = [[] for _ in urls]
    for _ in range(ROUNDS):
        for url, samples in zip(urls, found, strict=True):
            argv = ["ab", "-q", "-k", *options.split(), url]
            text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
            match = re.search(rf"{line}: +([\d.]+)", text)
            if match is None or "Non-2xx" in text:
                raise SystemExit(f"{url} was not served:\n{text}")
            samples.append(float(match[1]))
    return [statistics.median(samples) for samples in found]


def beside_nginx(registry: DirectoryRegistry, serve: int, nginx: int) -> list[list[str]]:
    """Rows of ``kernforge serve`` beside nginx with the same file."""

    def urls(repo_id: str, path: str) -> list[str]:
        name = f"build/torch-universal/{path}"
        blob = registry.listing(repo_id, registry.refs(repo_id)["v1"])[name].blob
        static = f"{registry.link_root(repo_id).name}/blobs/{blob}"
        hub = f"kernels/{repo_id}/resolve/v1/{name}"
        return [f"http://127.0.0.1:{serve}/{hub}", f"http://127.0.0.1:{nginx}/{static}"]

    heads = speed(urls(REPO, "__init__.py"), "-i -n 20000 -c 32", "Requests per second")
    rates = speed(urls(LARGE, "weights.bin"), "-n 4 -c 2", "Transfer rate")
    figures = {
        "HEAD of a file, requests a second": heads,
        f"a file of {LARGE_BYTES // 10**6} MB, MB/s": [rate / 1e3 for rate in rates],
    }
    return [[what, f"{a:,.0f}", f"{b:,.0f}", f"{a / b:.2f}"] for what, (a, b) in figures.items()]


def main() -> None:
    """Measure, and write the results."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench_load.make_kernel(place, REPO, BYTES, PACKAGE)
        bench_load.make_kernel(place, LARGE, LARGE_BYTES)
        ports = stack.enter_context(servers(place))
        meters = {name: Meter(port) for name, port in ports.items()}
        at = {name: f"127.0.0.1:{meter.port}" for name, meter in meters.items()}
        login = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
        os.environ |= {**login, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['moto']}"}
        os.environ["KERNFORGE_HOME"] = str(place / "home")
        boto3.client("s3").create_bucket(Bucket="bucket")
        source = open_registry(str(place / "registry"))
        for target in ("s3://bucket", f"oci+http://127.0.0.1:{ports['docker']}/kernels"):
            list(mirror(source, open_registry(target), REPO))

        def ours(url: str, of: str, **more: str) -> tuple[str, dict[str, str], Meter]:
            return "kernforge", {"KERNFORGE_REGISTRY": url, **more}, meters[of]

        bucket = {"AWS_ENDPOINT_URL": f"http://{at['moto']}"}
        hub = {"HF_ENDPOINT": f"http://{at['serve']}", "HF_HUB_DISABLE_XET": "1"}
        rows = measure(
            {
                "directory": ours(str(place / "registry"), "nginx"),
                "static files (nginx)": ours(f"http://{at['nginx']}", "nginx"),
                "bucket (moto's S3)": ours("s3://bucket", "moto", **bucket),
                "OCI (docker-registry)": ours(f"oci+http://{at['docker']}/kernels", "docker"),
                "`kernforge serve`": ours(f"hf+http://{at['serve']}", "serve"),
                "`kernforge serve`, loaded by `kernels`": ("kernels", hub, meters["serve"]),
            }
        )
        fast = beside_nginx(DirectoryRegistry(place / "registry"), ports["serve"], ports["nginx"])
    where = describe("kernforge", "kernels", "huggingface_hub", "obstore", "moto", "granian")
    write(
        RESULTS / "registry.json",
        where,
        title="Load one kernel from each kind of registry",
        head=["registry", "cold: requests", "answers", "time", "warm: requests", "time"],
        rows=rows,
        note=f"A kernel of {len(PACKAGE) + 2} files and {BYTES / 1e6:.0f} MB, by version, with the "
        f"import of the client. Medians of {RUNS} new processes each, in turns, which have torch "
        "already; cold is an empty cache. All servers are on the same machine, without TLS. "
        "By `benchmarks/bench_registry.py`.",
    )
    write(
        RESULTS / "serve.json",
        where,
        title="kernforge serve beside nginx",
        head=["", "kernforge serve", "nginx, one worker", "ratio"],
        rows=fast,
        note=f"Medians of {ROUNDS} runs of ab in turns, on the same machine as the servers, with "
        "connections that stay open: 32 at once for HEAD, 2 for the file. nginx sends the blob of "
        "the same file; its log is off, as with `serve -q`. By `benchmarks/bench_registry.py`.",
    )


if __name__ == "__main__":
    main()
