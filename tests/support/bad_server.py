# SPDX-License-Identifier: Apache-2.0
"""Servers of HTTP, and faulty answers: slow, endless, with wrong content, or not trusted."""

import contextlib
import functools
import gzip
import http.server
import json
import ssl
import subprocess
import sys
import threading
from pathlib import Path


class Server(http.server.ThreadingHTTPServer):
    """Answers each request by ``answer(handler)``; counts requests and keeps their tokens.

    With a certificate it speaks TLS.
    """

    daemon_threads = True

    def __init__(self, answer, *, certificate=None, handler=None):
        handler = handler or type("Handler", (_Handler,), {"answer": staticmethod(answer)})
        super().__init__(("127.0.0.1", 0), handler)
        self.requests = []
        self.tokens = []
        self.stopped = threading.Event()
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server_port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self):
        self.stopped.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request, client_address):
        """Say nothing of clients that leave."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.requests.append(self.path)
        self.server.tokens.append(self.headers.get("Authorization", ""))
        self.close_connection = True
        self.answer(self)

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 - names of http.server

    def log_message(self, *_):
        """Say nothing."""

    def start(self, status=200, **headers):
        self.send_response(status)
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def json(self, document, status=200, **headers):
        data = json.dumps(document).encode()
        self.start(status, Content_Length=len(data), Content_Type="application/json", **headers)
        self.wfile.write(data)


def serve(answer, **options):
    """A server for as long as the context lasts."""
    return contextlib.closing(Server(answer, **options))


def endless(handler, status=200):
    """A body of no announced length that never ends."""
    handler.start(status, Content_Type="application/json")
    while not handler.server.stopped.is_set():
        handler.wfile.write(b" " * 65536)


def dripping(handler):
    """A body that comes a byte at a time."""
    handler.start(Content_Length=10_000_000, Content_Type="application/json")
    while not handler.server.stopped.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def without_end(piece, before=b"", wait_s=0.02):
    """Raw bytes of HTTP, the last of them again and again."""

    def answer(handler):
        handler.wfile.write(before)
        while not handler.server.stopped.wait(wait_s):
            handler.wfile.write(piece)
            handler.wfile.flush()

    return answer


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def grown(handler):
    """A small body that unpacks to 100 MB."""
    packed = gzip.compress(bytes(100_000_000))
    handler.start(Content_Length=len(packed), Content_Encoding="gzip")
    handler.wfile.write(packed)


def in_circles(handler):
    """A redirect to another page of this server, which redirects."""
    place = f"{handler.server.url}/{len(handler.server.requests)}"
    handler.start(302, Location=place, Content_Length=0)


ENDLESS = {
    "a body": endless,
    "an error's body": functools.partial(endless, status=403),
    "a busy server's body": functools.partial(endless, status=503),
    "a slow body": dripping,
    "interim answers": without_end(b"HTTP/1.1 100 Continue\r\n\r\n", wait_s=0),
    "slow interim answers": without_end(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a slow header": without_end(b"x", b"HTTP/1.1 200 OK\r\nX-Long: "),
    "a slow status": without_end(b" ", b"HTTP/1.1 200"),
    "headers": without_end(b"X-More: x\r\n", b"HTTP/1.1 200 OK\r\n", 0),
    "trailers": without_end(b"X-More: x\r\n", _CHUNKED + b"2\r\n{}\r\n0\r\n"),
    "fast trailers": without_end(b"X-More: x\r\n", _CHUNKED + b"2\r\n{}\r\n0\r\n", 0),
    "chunks": without_end(b"10000\r\n" + b" " * 65536 + b"\r\n", _CHUNKED, 0),
    "small chunks": without_end(b"1\r\n \r\n", _CHUNKED),
    "a size of a chunk": without_end(b"0", _CHUNKED),
    "what it unpacks to": grown,
    "redirects": in_circles,
}
"""Answers without an end, or so large."""


def self_signed(path):
    """A file with a key and a certificate for 127.0.0.1 that no authority signed."""
    argv = ["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "1"]
    argv += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    argv += ["-keyout", f"{path}.key", "-out", path]
    subprocess.run(argv, check=True, capture_output=True)
    path.write_text(Path(f"{path}.key").read_text() + path.read_text())
    return path
