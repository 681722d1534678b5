# SPDX-License-Identifier: Apache-2.0
"""The protocol of the Hugging Face hub for reading kernels, from any registry.

The hub's clients need no change: ``HF_ENDPOINT`` names the server. A file is shown as a large file
of the hub, whose name is its SHA-256; a hub's small file keeps its git SHA-1. Large files of a
bucket are redirected to the bucket. No state is kept: any number of servers can share a registry.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote, unquote, urlsplit

import prometheus_client
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernforge.errors import KernforgeError, NetworkError
from kernforge.registry.listing import RemoteFile
from kernforge.registry.names import SHA256, versions
from kernforge.serve.access import READER, Access, Reader
from kernforge.serve.answers import Answer, FileAnswer, RawHeaders, encoded
from kernforge.serve.source import SHOWN, Source, when_warm
from kernforge.system.digest import git_blob, sha256

Headers: TypeAlias = Mapping[str, str]

_LARGEST_BODY = 1 << 20
_MOST_PATHS = 1000
_DATE = "1970-01-01T00:00:00.000Z"  # registries keep no dates, and the clients demand one
_IMMUTABLE, _CHANGES = "max-age=31536000, immutable", "no-cache"
_SAFE = {"X-Content-Type-Options": "nosniff"}
# A published page must not run as a page of this server.
_SANDBOX = {**_SAFE, "Content-Security-Policy": "default-src 'none'; sandbox"}

_LINE = "{time} {client} {method} {path} {status} {bytes} {ms} ms"

log = logging.getLogger("kernforge")


class RefusedError(Exception):
    """An answer with an error.

    Args:
        code: the hub's name of the error, which decides the exception of its clients.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Headers | None = None
    ) -> None:
        super().__init__(message)
        named = {"X-Error-Code": code} if code else {}
        self.status, self.message = status, message
        self.headers = {**named, "X-Error-Message": message, **_SAFE, **(headers or {})}

    def response(self) -> Response:
        """The answer."""
        return JSONResponse({"error": self.message}, self.status, self.headers)


_UNKNOWN_TOKEN = RefusedError(401, "", "Invalid credentials in Authorization header")


class _Endpoint:
    """An answer of the protocol, made in the event loop from what is in memory.

    Starlette's own endpoints would take another thread, or most of the time of a request.
    """

    def __init__(self, answer: Callable[[Request], ASGIApp], template: str) -> None:
        self._answer, self.template = answer, template

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "POST":
            scope["kernforge.body"] = await _body(request)
        try:
            answer = await when_warm(lambda: self._answer(request))
        except RefusedError as refused:
            answer = refused.response()
        await answer(scope, receive, send)


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk if len(body) <= _LARGEST_BODY else b""  # the rest is read and forgotten
    return body


class Hub:
    """The answers of the protocol."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source, self._access = source, access
        self._metrics = prometheus_client.CollectorRegistry()
        labels = ("route", "status")
        self.requests = prometheus_client.Counter(
            "kernforge_requests", "Requests.", labels, registry=self._metrics
        )
        self.sent = prometheus_client.Counter(
            "kernforge_sent_bytes", "Bytes of answers.", ("route",), registry=self._metrics
        )
        # What is the same for everybody, and never changes.
        self._tree_of = functools.lru_cache(256)(self._make_tree)
        self._headers_of = functools.lru_cache(20_000)(self._make_headers)

    def routes(self) -> list[BaseRoute]:
        """The routes; a parameter is one segment, with its slashes encoded."""
        api = "/api/kernels/{owner}/{name}"
        table: tuple[tuple[str, str, Callable[[Request], ASGIApp]], ...] = (
            ("GET", "/kernels/{owner}/{name}/resolve/{revision}/{path:path}", self.resolve),
            ("GET", f"{api}/tree/{{revision}}", self.tree),
            ("GET", f"{api}/tree/{{revision}}/{{folder:path}}", self.tree),
            ("GET", f"{api}/refs", self.refs),
            ("GET", api, self.info),
            ("GET", f"{api}/revision/{{revision}}", self.info),
            ("POST", f"{api}/paths-info/{{revision}}", self.paths),
            ("GET", "/api/kernels", self.search),
            ("GET", "/api/organizations/{owner}/overview", self.organization),
            ("GET", "/api/whoami-v2", self.whoami),
            ("GET", "/healthz", lambda _: PlainTextResponse("ok\n")),
            ("GET", "/metrics", self.metrics),
        )
        return [
            Route(path, _Endpoint(answer, path), methods=[method]) for method, path, answer in table
        ]

    def info(self, request: Request) -> Response:
        """A kernel and the files of a commit."""
        repo_id, commit = self._commit(request)
        private = not self._access.is_public(repo_id)
        files = [{"rfilename": path} for path in self._source.listing(repo_id, commit)]
        document = {
            "_id": sha256(repo_id)[:24],
            "id": repo_id,
            "author": repo_id.partition("/")[0],
            "sha": commit[:SHOWN],
            "private": private,
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "lastModified": _DATE,
            "createdAt": _DATE,
            "tags": [],
            "siblings": files,
        }
        return JSONResponse(document, headers=_SAFE)

    def refs(self, request: Request) -> Response:
        """The branches and tags of a kernel."""
        refs = self._source.refs(self._kernel(request))
        tags = set(versions(refs).values())
        document: dict[str, list[dict[str, str]]] = {"branches": [], "tags": [], "converts": []}
        if request.query_params.get("include_prs"):
            document["pullRequests"] = []
        for name, commit in refs.items():
            kind, folder = ("tags", "tags") if name in tags else ("branches", "heads")
            document[kind].append(
                {"name": name, "ref": f"refs/{folder}/{name}", "targetCommit": commit[:SHOWN]}
            )
        return JSONResponse(document, headers={**_SAFE, "Cache-Control": _CHANGES})

    def tree(self, request: Request) -> Response:
        """The files and folders of a folder, all in one page."""
        repo_id, commit = self._commit(request)
        folder = unquote(request.path_params.get("folder", "")).strip("/")
        recursive = request.query_params.get("recursive", "").lower() in {"true", "1"}
        body = self._tree_of(repo_id, commit, folder, recursive)
        if body is None:
            raise _no_entry(commit)
        headers = {**_SAFE, "Cache-Control": self._caching(request, repo_id, commit)}
        return Response(body, headers=headers, media_type="application/json")

    def _make_tree(self, repo_id: str, commit: str, folder: str, recursive: bool) -> bytes | None:  # noqa: FBT001
        entries = _entries(self._source.listing(repo_id, commit))
        below = f"{folder}/" if folder else ""
        found = [
            entry
            for path, entry in entries.items()
            if path.startswith(below) and (recursive or "/" not in path[len(below) :])
        ]
        return json.dumps(found).encode() if found or not folder else None

    def paths(self, request: Request) -> Response:
        """The files and folders at some paths."""
        repo_id, commit = self._commit(request)
        body: bytes = request.scope["kernforge.body"]
        try:
            if request.headers.get("content-type", "").startswith("application/json"):
                paths = [str(path) for path in json.loads(body)["paths"]]
            else:
                paths = parse_qs(body.decode(), max_num_fields=2 * _MOST_PATHS).get("paths", [])
        except (ValueError, KeyError, TypeError, RecursionError):
            paths = []
        if not paths or len(paths) > _MOST_PATHS or len(body) > _LARGEST_BODY:
            raise RefusedError(400, "", f"name 1 to {_MOST_PATHS} paths, as a form or in JSON")
        entries = _entries(self._source.listing(repo_id, commit))
        found = [entries[path.strip("/")] for path in paths if path.strip("/") in entries]
        return JSONResponse(found, headers=_SAFE)

    def resolve(self, request: Request) -> ASGIApp:
        """A file."""
        repo_id, commit = self._commit(request)
        path = unquote(request.path_params["path"])
        file = self._source.listing(repo_id, commit).get(path)
        if file is None:
            raise _no_entry(commit)
        headers = self._headers_of(commit, path, file, self._caching(request, repo_id, commit))
        if request.headers.get("if-none-match") in {f'"{file.blob}"', "*"}:
            return Answer(304, headers, {"Content-Length": "0"})
        if request.method == "HEAD":
            return Answer(200, headers)
        if link := self._source.link(repo_id, commit, path):
            # The link ends soon; and a client takes the size of the file from X-Linked-Size.
            moved = {"Location": link, "Cache-Control": "no-store", "Content-Length": "0"}
            return Answer(302, headers, moved)
        return FileAnswer(self._source.file(repo_id, commit, path), file, headers)

    def _make_headers(self, commit: str, path: str, file: RemoteFile, caching: str) -> RawHeaders:
        name = quote(path.rpartition("/")[2])
        large = {"X-Linked-Etag": f'"{file.blob}"', "X-Linked-Size": str(file.size)}
        return encoded(
            {
                "X-Repo-Commit": commit[:SHOWN],
                "ETag": f'"{file.blob}"',
                **(large if SHA256.fullmatch(file.blob) else {}),
                "Content-Length": str(file.size),
                "Content-Type": "application/octet-stream",
                "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
                "Accept-Ranges": "bytes",
                "Cache-Control": caching,
                **_SANDBOX,
            }
        )

    def search(self, request: Request) -> Response:
        """The kernels whose names have a text."""
        query = request.query_params
        text, author, limit = (query.get(name, "") for name in ("search", "author", "limit"))
        most = int(limit) if re.fullmatch("[0-9]{1,6}", limit) else _MOST_PATHS
        found = (
            {"id": repo_id, "author": owner, "private": not self._access.is_public(repo_id)}
            for repo_id in self._source.repo_ids()
            if text.lower() in repo_id.lower()
            and (owner := repo_id.partition("/")[0])
            and author in {"", owner}
        )
        return JSONResponse([*itertools.islice(found, most)], headers=_SAFE)

    def organization(self, request: Request) -> Response:
        """Whether an owner is a trusted publisher."""
        owner = unquote(request.path_params["owner"])
        if not self._source.is_trusted(owner):
            # Of an owner with kernels too: the answer must not show who has private ones.
            raise RefusedError(404, "", "This server trusts no publisher of that name")
        named = {"name": owner, "fullname": owner, "avatarUrl": "", "details": ""}
        return JSONResponse({**named, "trustedKernelPublisher": True}, headers=_SAFE)

    def whoami(self, request: Request) -> Response:  # noqa: ARG002 - an endpoint
        """The name of the token."""
        if not (name := READER.get().name):
            raise _UNKNOWN_TOKEN
        document: dict[str, Any] = {
            "type": "user",
            "id": sha256(name)[:24],
            "name": name,
            "fullname": name,
            "avatarUrl": "",
            "orgs": [],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": name, "role": "read", "createdAt": _DATE},
            },
        }
        return JSONResponse(document, headers=_SAFE)

    def metrics(self, request: Request) -> Response:  # noqa: ARG002 - an endpoint
        """The metrics for Prometheus."""
        body = prometheus_client.generate_latest(self._metrics)
        return Response(body, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    def _kernel(self, request: Request) -> str:
        """The kernel of a request that exists for its reader."""
        repo_id = unquote("{owner}/{name}".format(**request.path_params))
        if not self._source.has(repo_id):
            asked = self._access.asks_for_token and not READER.get().name
            raise RefusedError(
                401 if asked else 404, "RepoNotFound", "There is no such kernel, or it is private"
            )
        return repo_id

    def _commit(self, request: Request) -> tuple[str, str]:
        """The kernel and the commit of a request."""
        repo_id = self._kernel(request)
        revision = unquote(request.path_params.get("revision", ""))
        if (commit := self._source.commit(repo_id, revision)) is None:
            raise RefusedError(404, "RevisionNotFound", "The kernel has no such revision")
        return repo_id, commit

    def _caching(self, request: Request, repo_id: str, commit: str) -> str:
        """For how long an answer may be cached: a commit never changes."""
        by_commit = request.path_params["revision"] == commit[:SHOWN]
        scope = "public" if self._access.is_public(repo_id) else "private"
        return f"{scope}, {_IMMUTABLE}" if by_commit else _CHANGES


class Application:
    """The server as an ASGI application.

    Args:
        say: writes a line of the access log: a document, and a text.
    """

    def __init__(
        self, source: Source, access: Access, say: Callable[[Any, str], None] | None = None
    ) -> None:
        self._access, self._say = access, say
        self._hub = Hub(source, access)
        self._router = Router([*self._hub.routes()], redirect_slashes=False, default=_nothing)
        self._prefix = urlsplit(source.url).path
        prefix = uuid.uuid4().hex[:12]
        self._ids = (f"{prefix}-{number:x}" for number in itertools.count(1))
        self._count = functools.lru_cache(1000)(self._counters)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, count it and log it."""
        if scope["type"] != "http":
            return
        began, status, size = time.perf_counter(), 500, 0
        identity = next(self._ids).encode()

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                given = message["headers"]
                message["headers"] = [*given, (b"x-request-id", identity)]
                if scope["method"] != "HEAD":
                    size = int(dict(given).get(b"content-length", 0))
            await send(message)

        # A revision or a folder is one segment, whatever it has encoded in it.
        raw: str = scope["raw_path"].decode("latin-1")
        scope["path"] = raw.removeprefix(self._prefix) or "/"
        headers = dict(scope["headers"])
        reader = self._access.reader(headers.get(b"authorization", b"").decode("latin-1"))
        try:
            await self._answer(reader, scope, receive, counted)
        finally:
            template = getattr(scope.get("endpoint"), "template", "page")
            requests, sent = self._count(template, status)
            requests.inc()
            if size:
                sent.inc(size)
            if self._say:
                document: dict[str, Any] = {
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "id": identity.decode(),
                    "client": (scope.get("client") or ("",))[0],
                    "token": reader.name if reader else "",
                    "method": scope["method"],
                    "path": raw,
                    "status": status,
                    "bytes": size,
                    "ms": round(1000 * (time.perf_counter() - began), 1),
                    "agent": headers.get(b"user-agent", b"").decode("latin-1"),
                }
                self._say(
                    document,
                    "{time} {client} {method} {path} {status} {bytes} {ms} ms".format(**document),
                )

    async def _answer(
        self, reader: Reader | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if reader is None:
            await _UNKNOWN_TOKEN.response()(scope, receive, send)
            return
        READER.set(reader)  # of this task, which is one request
        try:
            await self._router(scope, receive, send)
        except KernforgeError as error:
            # Its text may name paths and hosts of the operator.
            log.warning("%s", error)
            busy = isinstance(error, NetworkError)
            refusal = RefusedError(
                503 if busy else 500,
                "",
                "The registry behind this server cannot be reached now"
                if busy
                else "The registry behind this server has an error; its operator has a log",
                {"Retry-After": "2"} if busy else {},
            )
            await refusal.response()(scope, receive, send)

    def _counters(self, template: str, status: int) -> tuple[Any, Any]:
        return (
            self._hub.requests.labels(template, str(status)),
            self._hub.sent.labels(template),
        )


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """What a server of reads does not have: writing, telemetry, likes."""
    await _body(Request(scope, receive))  # before the answer, or the client sees a broken line
    await RefusedError(404, "", "This server has no such page").response()(scope, receive, send)


def _no_entry(commit: str) -> RefusedError:
    return RefusedError(
        404, "EntryNotFound", "The commit has no such file", {"X-Repo-Commit": commit[:SHOWN]}
    )


def _entries(files: Mapping[str, RemoteFile]) -> dict[str, dict[str, Any]]:
    """The items of a listing: its folders, and its files."""
    entries: dict[str, dict[str, Any]] = {}
    for path in files:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            oid = git_blob(folder.encode())
            entries[folder] = {"type": "directory", "oid": oid, "size": 0, "path": folder}
    for path, file in files.items():
        entries[path] = {"type": "file", "oid": file.blob, "size": file.size, "path": path}
        if SHA256.fullmatch(file.blob):
            pointer = (
                "version https://git-lfs.github.com/spec/v1\n"
                f"oid sha256:{file.blob}\nsize {file.size}\n"
            ).encode()
            large = {"oid": file.blob, "size": file.size, "pointerSize": len(pointer)}
            entries[path] |= {"oid": git_blob(pointer), "lfs": large}
    return dict(sorted(entries.items()))
