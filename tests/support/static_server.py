# SPDX-License-Identifier: Apache-2.0
"""A web server that knows nothing of registries: nginx."""

import contextlib
import http.client
import os
import shutil
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
        self._log, config = home / "access.log", home / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""

        def start(port):
            config.write_text(_CONFIG.format(user=user, home=home, root=root, port=port))
            return processes.start([NGINX, "-e", home / "error.log", "-c", config])

        self._server, self.port = processes.listening(start)
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()

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
