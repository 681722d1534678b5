# SPDX-License-Identifier: Apache-2.0
"""A web server that knows nothing of registries: nginx."""

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
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
        self._log, self._server = home / "access.log", self._start(root, home)
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()

    def _start(self, root: Path, home: Path) -> subprocess.Popen:
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
        end = f"/end-{time.monotonic_ns()}"  # the log has it after all that came before
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request("GET", end)
            connection.getresponse().read()
        while end not in (text := self._log.read_text()):
            time.sleep(0.02)
        lines = (line.removesuffix(" -") for line in text.splitlines())
        return [line for line in lines if "/end-" not in line]
