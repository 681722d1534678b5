# SPDX-License-Identifier: Apache-2.0
"""A web server that knows nothing of registries: nginx, or Python's own where nginx is missing."""

import contextlib
import http.client
import http.server
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

from support import processes

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
_CONFIG = """
daemon off;
{user}
worker_processes 1;
pid {home}/pid;
error_log {home}/error.log;
events {{ }}
http {{
  log_format lines "$request_method $uri $http_range";
  access_log {home}/access.log lines;
  client_body_temp_path {home}/body;
  proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi;
  scgi_temp_path {home}/scgi;
  sendfile on;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


class StaticServer:
    """Shows a directory.

    Args:
        home: a directory for the server's own files.
    """

    def __init__(self, root: Path, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._log: list[str] | Path = home / "access.log"
        if NGINX is None:
            self._log = []
            server = http.server.ThreadingHTTPServer(
                ("127.0.0.1", 0),
                type("Handler", (_Handler,), {"root": str(root), "lines": self._log}),
            )
            self.port = server.server_port
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            self._stops = [server.shutdown, server.server_close]
        else:
            server = self._start_nginx(root, home)
            self._stops = [server.terminate, server.wait]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        for stop in self._stops:
            stop()

    def _start_nginx(self, root: Path, home: Path) -> subprocess.Popen:
        for _ in range(5):  # another process may take the port first
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            user = "user root;" if os.geteuid() == 0 else ""
            config = home / "nginx.conf"
            text = _CONFIG.format(user=user, home=home, root=root, port=self.port)
            config.write_text(text)
            server = processes.start([NGINX, "-e", home / "error.log", "-c", config])
            while server.poll() is None:
                at = ("127.0.0.1", self.port)
                with contextlib.suppress(OSError), socket.create_connection(at, 5):
                    return server
                time.sleep(0.02)
        raise AssertionError((home / "error.log").read_text())

    def requests(self) -> list[str]:
        """``GET /path bytes=0-9`` of each request until now, in order."""
        if isinstance(self._log, list):
            return list(self._log)
        end = f"/end-{time.monotonic_ns()}"  # the log has it after all that came before
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request("GET", end)
            connection.getresponse().read()
        while end not in (text := self._log.read_text()):
            time.sleep(0.02)
        lines = (line.removesuffix(" -") for line in text.splitlines())
        return [line for line in lines if "/end-" not in line]


class _Handler(http.server.SimpleHTTPRequestHandler):
    root: str
    lines: list[str]

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=self.root)

    def do_GET(self):
        wanted = self.headers.get("Range", "")
        self.lines.append(f"GET {self.path} {wanted}".rstrip())
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            self.send_error(404)
            return
        data, status = file.read_bytes(), 200
        if bounds := re.fullmatch(r"bytes=(\d+)-(\d*)", wanted):
            data, status = data[int(bounds[1]) : int(bounds[2] or len(data)) + 1], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Say nothing."""
