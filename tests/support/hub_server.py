# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face hub in the test process: repositories of type kernel over real HTTP.

It holds what the protocol shows (commits, branches, tags, git and LFS objects), checks what it is
sent, and remembers every request. ``fault`` breaks the next answers to a path on purpose.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from support import bad_server

WRITER, READER = "hf_writer", "hf_reader"
LARGE = (".so", ".bin")
PAGE = 1000


@dataclass(frozen=True)
class Blob:
    data: bytes
    large: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def git(self) -> str:
        """What git calls it: the name of the content, or of the pointer to it."""
        text = (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\n"
            f"size {len(self.data)}\n"
        ).encode()
        data = text if self.large else self.data
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.large else self.git


@dataclass
class Repo:
    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, Blob], parent: str = "") -> str:
        text = f"{parent}{len(self.commits)}" + "".join(f"{p}{b.git}" for p, b in files.items())
        oid = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.commits[oid] = dict(sorted(files.items()))
        self.branches[branch] = oid
        return oid

    def find(self, revision: str) -> str | None:
        if revision in self.commits:
            return revision
        found = [c for c in self.commits if len(revision) >= 7 and c.startswith(revision)]
        return self.tags.get(revision) or self.branches.get(revision) or (found or [None])[0]


class HubServer:
    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.publishers: set[str] = set()
        self.organizations: set[str] = set()
        self.forbidden: set[str] = set()  # owners who may not publish
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        self.user_agents: list[str] = []
        self.ranges: list[str] = []
        self.page = PAGE
        self.on_commit = lambda _repo_id, _branch: None
        self._faults: list[tuple[re.Pattern[str], int | str, int]] = []
        self.lock = threading.RLock()
        handler = type("Handler", (_Handler,), {"hub": self})
        server = bad_server.Server(None, handler=handler)
        self.url, self.close = server.url, server.close
        # Large files come from another host, which must not see the token.
        self.cdn_url = self.url.replace("127.0.0.1", "localhost")

    def add(self, repo_id: str, branch: str, files: dict[str, bytes]) -> str:
        """Add files to a branch, which is made from main; returns the commit."""
        repo = self.repos.setdefault(repo_id, Repo())
        if "main" not in repo.branches:
            repo.commit("main", {".gitattributes": Blob(b"*.so filter=lfs\n", large=False)})
        parent = repo.branches.get(branch) or repo.branches["main"]
        blobs = {p: Blob(d, large=p.endswith(LARGE)) for p, d in files.items()}
        return repo.commit(branch, {**repo.commits[parent], **blobs}, parent)

    def files(self, repo_id: str, revision: str) -> dict[str, bytes]:
        repo = self.repos[repo_id]
        return {p: b.data for p, b in repo.commits[repo.find(revision)].items()}

    def fault(self, path: str, kind: int | str, times: int = 1) -> None:
        """Answer so to the next requests whose ``METHOD path`` matches: a status, or a word.

        ``cut``: half of the body, then the connection closes. ``drop``: no answer. ``lie``:
        other bytes of the same length.
        """
        self._faults.append((re.compile(path), kind, times))

    def next_fault(self, line: str) -> int | str | None:
        with self.lock:
            for index, (pattern, kind, times) in enumerate(self._faults):
                if pattern.search(line):
                    self._faults[index] = (pattern, kind, times - 1)
                    if times == 1:
                        del self._faults[index]
                    return kind
        return None

    def counted(self) -> Counter[str]:
        """Requests by what they are for, since the last time."""
        with self.lock:
            # The hub's client asks once what agents there are, to name the one that runs it.
            found = Counter(_purpose(*r) for r in self.requests if r[1] != "/api/agent-harnesses")
            self.requests.clear()
        return found


def _purpose(method: str, path: str) -> str:
    for word in ("/refs", "/tree/", "/resolve/", "/cdn/", "/overview", "/commit/", "/preupload/"):
        if word in path:
            return f"{method} {word.strip('/')}"
    return f"{method} {path}"


class RefusedError(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.status, self.code, self.message = status, code, message


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes: the second would wait for the client to confirm the first, 40
    # ms.
    disable_nagle_algorithm = True
    hub: HubServer

    def handle_any(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(size)
        url = urlsplit(self.path)
        path = url.path
        self.query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        self.token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with self.hub.lock:
            self.hub.requests.append((self.command, unquote(path)))
            self.hub.tokens.append(self.token)
            self.hub.user_agents.append(self.headers.get("User-Agent", ""))
            self.hub.ranges.append(self.headers.get("Range", ""))
        self.broken = self.hub.next_fault(f"{self.command} {unquote(path)}")
        if self.broken == "drop":
            self.close_connection = True
            return
        if isinstance(self.broken, int):
            self._send(self.broken, b"{}", {"Retry-After": "0"})
            return
        for pattern, method, name in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in method.split():
                try:
                    with self.hub.lock:
                        answer = getattr(self, name)(*map(unquote, match.groups()))
                except RefusedError as refused:
                    self._refuse(refused)
                else:
                    if answer is not None:
                        self._send(200, json.dumps(answer).encode())
                return
        self._send(404, b'{"error": "no such page"}')

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        given = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        for name, value in {**given, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.broken == "lie":
            body = bytes(byte ^ 1 for byte in body)
        if self.broken == "cut":
            body = body[: len(body) // 2]
            self.close_connection = True
        self.wfile.write(body)

    def _refuse(self, refused: RefusedError) -> None:
        headers = {"X-Error-Message": refused.message or refused.code or "no"}
        if refused.code:
            headers["X-Error-Code"] = refused.code
        body = json.dumps({"error": headers["X-Error-Message"]}).encode()
        self._send(refused.status, body, headers)

    def log_message(self, *_args: object) -> None:
        """Say nothing: the test reads ``requests``."""

    # -- who may ----------------------------------------------------------------------------

    def _repo(self, repo_id: str) -> Repo:
        repo = self.hub.repos.get(repo_id)
        known = self.token in {WRITER, READER}
        if repo is None or (repo.private and not known):
            raise RefusedError(404 if known else 401, "RepoNotFound", "Repository not found")
        if repo.gated and not known:
            raise RefusedError(401, "GatedRepo", "Access to this kernel is restricted")
        return repo

    def _writable(self, repo_id: str) -> Repo:
        self._may_write(repo_id.partition("/")[0])
        return self._repo(repo_id)

    def _may_write(self, owner: str) -> None:
        if not self.token:
            raise RefusedError(401, "", "Invalid username or password.")
        if self.token != WRITER or owner in self.hub.forbidden:
            raise RefusedError(
                403, "", f"You don't have the rights to create a kernel under {owner}"
            )

    def _commit(self, repo: Repo, revision: str) -> str:
        found = repo.find(revision)
        if found is None:
            raise RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found

    # -- reading ----------------------------------------------------------------------------

    def search(self) -> None:
        word, limit = self.query.get("search", ""), int(self.query.get("limit", 1000))
        found = [r for r, repo in self.hub.repos.items() if word in r and not repo.private]
        self._send(200, json.dumps([{"id": repo_id} for repo_id in found[:limit]]).encode(), {})

    def info(self, repo_id: str, revision: str = "main") -> dict[str, Any]:
        repo = self._repo(repo_id)
        commit = self._commit(repo, revision)
        siblings = [{"rfilename": path} for path in repo.commits[commit]]
        return {"id": repo_id, "sha": commit, "private": repo.private, "siblings": siblings}

    def refs(self, repo_id: str) -> dict[str, Any]:
        repo = self._repo(repo_id)
        return {
            "branches": [_ref("heads", n, c) for n, c in repo.branches.items()],
            "tags": [_ref("tags", n, c) for n, c in repo.tags.items()],
            "converts": [],
        }

    def tree(self, repo_id: str, revision: str, folder: str = "") -> None:
        repo = self._repo(repo_id)
        files = repo.commits[self._commit(repo, revision)]
        folders = {str(folder) for path in files for folder in PurePosixPath(path).parents} - {"."}
        items = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": f} for f in folders]
        items += [_file(path, blob) for path, blob in files.items()]
        below = f"{folder}/" if folder else ""
        items = [item for item in items if item["path"].startswith(below)]
        if folder and not items:
            raise RefusedError(404, "EntryNotFound", f"{folder} does not exist")
        if self.query.get("recursive") not in {"true", "True", "1"}:
            items = [item for item in items if "/" not in item["path"].removeprefix(below)]
        items.sort(key=lambda item: item["path"])
        start = int(self.query.get("cursor", 0))
        headers = {}
        if start + self.hub.page < len(items):
            query = f"recursive={self.query.get('recursive', '')}&cursor={start + self.hub.page}"
            place = f"{self.hub.url}{urlsplit(self.path).path}?{query}"
            headers["Link"] = f'<{place}>; rel="next"'
        self._send(200, json.dumps(items[start : start + self.hub.page]).encode(), headers)

    def resolve(self, repo_id: str, revision: str, path: str) -> None:
        repo = self._repo(repo_id)
        commit = self._commit(repo, revision)
        blob = repo.commits[commit].get(path)
        if blob is None:
            raise RefusedError(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit, "ETag": f'"{blob.git}"'}
        if blob.large:
            self.hub.objects[blob.sha256] = blob.data
            headers |= {
                "X-Linked-Etag": f'"{blob.sha256}"',
                "X-Linked-Size": str(len(blob.data)),
                "Location": f"{self.hub.cdn_url}/cdn/{blob.sha256}",
            }
            self._send(302, b"", headers)
        else:
            self._bytes(blob.data, headers)

    def cdn(self, oid: str) -> None:
        if self.token:
            raise RefusedError(400, "", "a token that is not meant for this host")
        self._bytes(self.hub.objects[oid], {"ETag": f'"{oid}"'})

    def _bytes(self, data: bytes, headers: dict[str, str]) -> None:
        headers |= {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            self._send(200, data, headers)
            return
        start, stop = int(wanted[1]), int(wanted[2] or len(data) - 1) + 1
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        self._send(206, data[start:stop], headers)

    def organization(self, name: str) -> dict[str, Any]:
        if name not in self.hub.organizations | self.hub.publishers:
            raise RefusedError(404, "", "Organization not found")
        trusted = name in self.hub.publishers
        return {
            "avatarUrl": "",
            "name": name,
            "fullname": name,
            "trustedKernelPublisher": trusted,
        }

    # -- writing ----------------------------------------------------------------------------

    def create(self) -> dict[str, Any] | None:
        asked = json.loads(self.body)
        owner = asked.get("organization") or "somebody"
        self._may_write(owner)
        if asked["type"] != "kernel":
            raise RefusedError(400, "", f"unexpected type {asked['type']}")
        repo_id = f"{owner}/{asked['name']}"
        url = f"{self.hub.url}/kernels/{repo_id}"
        if repo_id in self.hub.repos:
            self._send(409, json.dumps({"error": "You already created this", "url": url}).encode())
            return None
        repo = self.hub.repos[repo_id] = Repo(
            private=bool(asked.get("private")) or asked.get("visibility") == "private"
        )
        repo.commit("main", {".gitattributes": Blob(b"*.so filter=lfs\n", large=False)})
        return {"url": url}

    def branch(self, repo_id: str, name: str) -> dict[str, Any]:
        repo = self._writable(repo_id)
        if self.command == "DELETE":
            repo.branches.pop(name)
            return {}
        if name in repo.branches:
            raise RefusedError(409, "", "Reference already exists")
        start = json.loads(self.body or b"{}").get("startingPoint", "main")
        repo.branches[name] = self._commit(repo, start)
        return {}

    def tag(self, repo_id: str, name: str) -> dict[str, Any]:
        repo = self._writable(repo_id)
        tag = json.loads(self.body)["tag"]
        if tag in repo.tags:
            raise RefusedError(409, "", "Tag reference exists already")
        repo.tags[tag] = self._commit(repo, name)
        return {}

    def preupload(self, repo_id: str, revision: str) -> dict[str, Any]:
        repo = self._writable(repo_id)
        files = repo.commits[self._commit(repo, revision)]
        answer = []
        for item in json.loads(self.body)["files"]:
            base64.b64decode(item["sample"])
            old = files.get(item["path"])
            mode = "lfs" if item["path"].endswith(LARGE) else "regular"
            known = {"oid": old.etag} if old else {}
            answer.append(
                {"path": item["path"], "uploadMode": mode, "shouldIgnore": False, **known}
            )
        return {"files": answer}

    def lfs_batch(self, repo_id: str) -> dict[str, Any]:
        if not self.token:
            raise RefusedError(401, "", "Invalid username or password.")
        objects = []
        for item in json.loads(self.body)["objects"]:
            oid = item["oid"]
            there = oid in self.hub.objects
            upload = {"href": f"{self.hub.url}/upload/{oid}", "header": {}}
            verify = {"href": f"{self.hub.url}/verify/{oid}", "header": {}}
            actions = {} if there else {"actions": {"upload": upload, "verify": verify}}
            objects.append({**item, **actions})
        return {"transfer": "basic", "objects": objects}

    def upload(self, oid: str) -> dict[str, Any]:
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise RefusedError(400, "", "the content is not what was announced")
        self.hub.objects[oid] = self.body
        return {}

    def verify(self, oid: str) -> dict[str, Any]:
        if json.loads(self.body)["size"] != len(self.hub.objects[oid]):
            raise RefusedError(400, "", "not the size that was announced")
        return {}

    def commit(self, repo_id: str, revision: str) -> dict[str, Any]:
        repo = self._writable(repo_id)
        self.hub.on_commit(repo_id, revision)
        lines = [json.loads(line) for line in self.body.splitlines()]
        header = lines.pop(0)["value"]
        parent = self._commit(repo, revision)
        if header.get("parentCommit", parent) != parent:
            raise RefusedError(
                412, "", "A commit has happened since. Please refresh and try again."
            )
        if len(lines) > 1000:
            raise RefusedError(413, "", "too many operations in one commit")
        files = dict(repo.commits[parent])
        for line in lines:
            _apply(files, line["key"], line["value"], self.hub.objects)
        oid = repo.commit(revision, files, parent)
        url = f"{self.hub.url}/kernels/{repo_id}/commit/{oid}"
        return {"success": True, "commitUrl": url, "commitOid": oid}

    def validate_yaml(self) -> dict[str, Any]:
        return {"errors": [], "warnings": []}


def _apply(
    files: dict[str, Blob], key: str, value: dict[str, Any], objects: dict[str, bytes]
) -> None:
    path = value["path"]
    if key == "file":
        files[path] = Blob(base64.b64decode(value["content"]), large=False)
    elif key == "lfsFile":
        if value["oid"] not in objects:
            raise RefusedError(400, "", f"{path}: its content was never uploaded")
        files[path] = Blob(objects[value["oid"]], large=True)
    elif key == "deletedFile":
        if path not in files:
            raise RefusedError(404, "EntryNotFound", "A file with this name doesn't exist")
        del files[path]
    else:
        raise RefusedError(400, "", f"unknown operation {key}")


def _ref(kind: str, name: str, commit: str) -> dict[str, str]:
    return {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit}


def _file(path: str, blob: Blob) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "file", "oid": blob.git, "size": len(blob.data), "path": path}
    if blob.large:
        item["lfs"] = {"oid": blob.sha256, "size": len(blob.data), "pointerSize": 130}
    return item


_REPO = r"([^/]+/[^/]+)"
_ROUTES = [
    (r"/api/kernels", "GET", "search"),
    (rf"/api/kernels/{_REPO}", "GET", "info"),
    (rf"/api/kernels/{_REPO}/revision/([^/]+)", "GET", "info"),
    (rf"/api/kernels/{_REPO}/refs", "GET", "refs"),
    (rf"/api/kernels/{_REPO}/tree/([^/]+)", "GET", "tree"),
    (rf"/api/kernels/{_REPO}/tree/([^/]+)/(.+)", "GET", "tree"),
    (rf"/kernels/{_REPO}/resolve/([^/]+)/(.+)", "GET HEAD", "resolve"),
    (r"/cdn/([0-9a-f]+)", "GET", "cdn"),
    (r"/api/organizations/([^/]+)/overview", "GET", "organization"),
    (r"/api/repos/create", "POST", "create"),
    (r"/api/validate-yaml", "POST", "validate_yaml"),
    (rf"/api/kernels/{_REPO}/branch/([^/]+)", "POST DELETE", "branch"),
    (rf"/api/kernels/{_REPO}/tag/([^/]+)", "POST", "tag"),
    (rf"/api/kernels/{_REPO}/preupload/([^/]+)", "POST", "preupload"),
    (rf"/kernels/{_REPO}\.git/info/lfs/objects/batch", "POST", "lfs_batch"),
    (r"/upload/([0-9a-f]+)", "PUT", "upload"),
    (r"/verify/([0-9a-f]+)", "POST", "verify"),
    (rf"/api/kernels/{_REPO}/commit/([^/]+)", "POST", "commit"),
]

for _method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler.handle_any)
