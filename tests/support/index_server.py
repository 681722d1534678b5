# SPDX-License-Identifier: Apache-2.0
"""A package index on this machine: real HTTP, with ranges or without."""

import functools
import hashlib
import http.server
import re
import threading
from pathlib import Path

from support.wheel_maker import make_wheel

from kernforge.toolchain.index import pip_config


class IndexServer:
    """A package index over HTTP that serves a directory, with ranges or without."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ranges = True
        self.requests: list[str] = []
        self.truncate_next = 0
        handler = functools.partial(_Handler, self)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def config(self) -> pip_config.PipConfig:
        return pip_config.PipConfig(index_urls=(f"{self.url}/simple",), timeout_s=5)

    def add(self, wheel: Path, *, sha256: str | None = None) -> None:
        """List a wheel that lies below the root; its hash may be a lie."""
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest() if sha256 is None else sha256
        project = wheel.name.partition("-")[0].replace("_", "-").lower()
        page = self.root / "simple" / project / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        link = f'<a href="/{wheel.relative_to(self.root)}#sha256={sha256}">{wheel.name}</a>\n'
        page.write_text((page.read_text() if page.exists() else "") + link)

    def add_wheel(self, name: str, members: dict[str, bytes], **lies: tuple[str, ...]) -> Path:
        """Make a wheel and list it; ``tampered`` members are not what its RECORD says."""
        path = make_wheel(self.root / "files" / name, members, **lies)
        self.add(path)
        return path

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, owner: IndexServer, *args: object) -> None:
        self.owner = owner
        super().__init__(*args)

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.owner.requests.append(f"{self.path} {wanted}".strip())
        path = self.owner.root / self.path.strip("/")
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted) if self.owner.ranges else None
        if match:
            start = int(match[1]) if match[1] else max(0, len(data) - int(match[2]))
            stop = int(match[2]) + 1 if match[1] and match[2] else len(data)
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
            data = data[start:stop]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if self.owner.truncate_next:
            data, self.owner.truncate_next = data[: self.owner.truncate_next], 0
            self.close_connection = True
        self.wfile.write(data)

    def log_message(self, *_args: object) -> None:
        """Say nothing: the test reads ``requests``."""
