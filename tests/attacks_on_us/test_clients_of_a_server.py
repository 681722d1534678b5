# SPDX-License-Identifier: Apache-2.0
"""Clients of ``kernforge serve`` ask for what is not theirs, or keep it from serving others."""

import asyncio
import contextlib
import hashlib
import resource
import socket
from urllib.parse import urlsplit

import psutil
import pytest
from support.served import publish, served

from kernforge.registry.directory import DirectoryRegistry

pytest.importorskip("granian")

LIBRARY = bytes(range(256)) * 40_000
FILES = {"build/torch-cpu/toy.so": LIBRARY, "README.md": b"# toy\n"}
SECRET = "of the operator"  # noqa: S105
TOKEN = "token"  # noqa: S105


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def registry(place):
    registry = DirectoryRegistry(place / "registry")
    publish(registry, "acme/toy", FILES, "main", "v1")
    publish(registry, "acme/secret", {"README.md": SECRET.encode()}, "main")
    (place / "secret").write_text(SECRET)
    return registry


@pytest.fixture(scope="module")
def server(place, registry):
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    text = f'public = ["acme/toy"]\n[[token]]\nname = "ci"\nsha256 = "{digest}"\n'
    (place / "tokens.toml").write_text(text)
    with served(registry.root, place / "log", "--tokens", place / "tokens.toml") as server:
        yield server


UP = ("..", "%2e%2e", "%252e%252e", "..%2f..", "..%5c..", "%c0%ae%c0%ae", "..%00", ".%2e")
TARGETS = (
    "/kernels/acme/toy/resolve/v1/{up}/{up}/{up}/{up}/secret",
    "/kernels/acme/toy/resolve/v1/build/torch-cpu/{up}/{up}/{up}/refs/v1",
    "/kernels/acme/toy/resolve/{up}%2f{up}/README.md",
    "/kernels/acme/{up}/resolve/v1/secret",
    "/kernels/{up}/toy/resolve/v1/README.md",
    "/api/kernels/acme/toy/tree/v1/{up}%2f{up}",
    "/api/kernels/acme/toy/tree/{up}",
    "/api/kernels/{up}/{up}",
    "/static/{up}/{up}/secret",
)


@pytest.mark.parametrize("target", TARGETS)
def test_no_path_leaves_the_commit(server, target):
    for up in UP:
        answer = server.ask(target.format(up=up))
        assert answer.status in {400, 401, 404}, up
        assert SECRET.encode() not in answer.body


def test_link_out_of_a_kernel_is_not_followed(tmp_path, place, server, registry):
    root = DirectoryRegistry(tmp_path / "copied")
    commit = publish(root, "acme/toy", FILES, "main")
    snapshot = root.snapshot("acme/toy", commit)
    (snapshot / "link").symlink_to(place / "secret")
    (snapshot / "blob").symlink_to(
        registry.link_root("acme/secret") / "blobs" / hashlib.sha256(SECRET.encode()).hexdigest()
    )
    with served(root.root, tmp_path / "log") as copied:
        for name in ("link", "blob"):
            answer = copied.ask(f"/kernels/acme/toy/resolve/main/{name}")
            assert (answer.status, SECRET.encode() in answer.body) == (500, False)


def test_hash_is_no_permission(server, registry):
    commit = registry.ref("acme/secret", "main")
    blob = hashlib.sha256(SECRET.encode()).hexdigest()
    for path in (
        f"/kernels/acme/toy/resolve/{commit}/README.md",
        f"/api/kernels/acme/toy/tree/{commit}",
        f"/api/kernels/acme/toy/revision/{commit[:7]}",
        f"/kernels/acme/toy/resolve/v1/blobs/{blob}",
        f"/kernels/acme/secret/resolve/{commit}/README.md",
        f"/kernels/Acme/Secret/resolve/{commit}/README.md",
    ):
        answer = server.ask(path)
        assert answer.status in {401, 404}
        assert SECRET.encode() not in answer.body


def test_no_text_of_a_request_becomes_a_header(server):
    for path in (
        "/kernels/acme/toy/resolve/v1%0d%0aX-Evil:%201/README.md",
        "/kernels/acme/toy/resolve/v1/%0d%0aX-Evil:%201",
        "/api/kernels/acme%0d%0aX-Evil:%201/toy",
        "/api/organizations/%0d%0aX-Evil:%201/overview",
    ):
        answer = server.ask(path, Range="bytes=0-1\t")
        assert "X-Evil" not in answer.headers
        assert answer.status in {401, 404}


def test_odd_ranges_send_no_more_than_the_file(server):
    path = "/kernels/acme/toy/resolve/v1/build/torch-cpu/toy.so"
    many = ",".join(f"{n}-" for n in range(99))
    for asked in (f"bytes={many}", f"bytes={'9' * 5000}-", "bytes=5-3", "bytes=a-b", "lines=1-2"):
        answer = server.ask(path, Range=asked)
        assert len(answer.body) < len(LIBRARY) + 10_000, asked
        assert answer.status < 500, asked


def test_endless_body_is_not_kept(server):
    process = psutil.Process(server.process.pid)
    path = "/api/kernels/acme/toy/commit/v1"
    server.ask(path, method="POST", body=b"x")
    before = process.memory_info().rss
    body = b"x" * (256 << 20)
    assert server.ask(path, method="POST", body=body).status == 404
    assert process.memory_info().rss - before < 64 << 20


def connect(server) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port), timeout=60)


def test_idle_and_slow_clients_do_not_stop_others(server):
    process = psutil.Process(server.process.pid)
    path = "/kernels/acme/toy/resolve/v1/build/torch-cpu/toy.so"
    head = f"GET {path} HTTP/1.1\r\nHost: here\r\n"
    with contextlib.ExitStack() as stack:
        for begin in ("", head, f"{head}Range: bytes=1-\r\n\r\n", f"{head}\r\n"):
            for _ in range(200 if not begin.endswith("\r\n\r\n") else 50):
                stack.enter_context(connect(server)).sendall(begin.encode())
        for _ in range(20):
            assert server.ask(path).body == LIBRARY
        assert process.memory_info().rss < 400 << 20


async def _load(url, path, at_once):
    """The statuses and sizes of as many answers to one request, asked for at once."""
    address, ready = urlsplit(url), asyncio.Event()

    async def client():
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        await ready.wait()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read(-1)
        writer.close()
        return head.split()[1], len(body)

    clients = [asyncio.ensure_future(client()) for _ in range(at_once)]
    await asyncio.sleep(1)
    ready.set()
    return await asyncio.gather(*clients)


def test_thousand_clients_of_a_cold_kernel_are_one_download(hub, tmp_path, monkeypatch):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    small = {"build/torch-cpu/toy.so": LIBRARY[:100_000]}
    hub.add("acme/toy", "v1", small)
    with served(f"hf+{hub.url}", tmp_path / "log") as server:
        path = "/kernels/acme/toy/resolve/v1/build/torch-cpu/toy.so"
        answers = asyncio.run(_load(server.url, path, 1000))
        assert set(answers) == {(b"200", 100_000)}
        requests = hub.counted()
        assert (requests["GET tree"], requests["GET cdn"]) == (1, 1)
