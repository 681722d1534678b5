# SPDX-License-Identifier: Apache-2.0
"""A package index on this machine: real HTTP, with ranges or without."""

import hashlib
import re
from pathlib import Path

from support import bad_server
from support.wheel_maker import make_wheel

from kernforge.toolchain.index import pip_config


class IndexServer:
    """A package index over HTTP that serves a directory, with ranges or without."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ranges = True
        self.requests: list[str] = []
        self.truncate_next = 0
        self._server = bad_server.Server(self._answer)
        self.url, self.close = self._server.url, self._server.close

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

    def _answer(self, handler) -> None:
        wanted = handler.headers.get("Range", "")
        self.requests.append(f"{handler.path} {wanted}".strip())
        path = self.root / handler.path.strip("/")
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            handler.start(404, Content_Length=0)
            return
        data, status, headers = path.read_bytes(), 200, {"Content-Type": "text/html"}
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted) if self.ranges else None
        if match:
            start = int(match[1]) if match[1] else max(0, len(data) - int(match[2]))
            stop = int(match[2]) + 1 if match[1] and match[2] else len(data)
            if start >= len(data):
                handler.start(416, Content_Length=0)
                return
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            data, status = data[start:stop], 206
        handler.start(status, Content_Length=len(data), **headers)
        if self.truncate_next:
            data, self.truncate_next = data[: self.truncate_next], 0
        handler.wfile.write(data)
