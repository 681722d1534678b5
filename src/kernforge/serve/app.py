# SPDX-License-Identifier: Apache-2.0
"""The protocol of the Hugging Face hub for reading kernels, from any registry.

The hub's clients need no change: ``HF_ENDPOINT`` names the server. A file is shown as a large file
of the hub, whose name is its SHA-256; a hub's small file keeps its git SHA-1. Large files of a
bucket are redirected to the bucket. No state is kept: any number of servers can share a registry.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import prometheus_client
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Message, Receive, Scope, Send

from kernforge.errors import KernforgeError, NetworkError
from kernforge.registry.listing import RemoteFile
from kernforge.registry.names import SHA256, versions
from kernforge.serve import pages
from kernforge.serve.access import READER, Access, Reader
from kernforge.serve.source import SHOWN, Source, when_warm
from kernforge.system.console import Console
from kernforge.system.digest import git_blob, sha256

_LARGEST_BODY = 1 << 20
_MOST_PATHS = 1000
_DATE = "1970-01-01T00:00:00.000Z"  # registries keep no dates, and the clients demand one
_IMMUTABLE, _CHANGES = "max-age=31536000, immutable", "no-cache"
_SAFE = {"X-Content-Type-Options": "nosniff"}
# A published page must not run as a page of this server.
_SANDBOX = {**_SAFE, "Content-Security-Policy": "default-src 'none'; sandbox"}
_LOG_EVERY_S = 0.2
_LINE = "{time} {client} {method} {path} {status} {bytes} {ms} ms"

log = logging.getLogger("kernforge")


class RefusedError(Exception):
    """An answer with an error.

    Args:
        code: the hub's name of the error, which decides the exception of its clients.
    """

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        named = {"X-Error-Code": code} if code else {}
        self.status, self.message = status, message
        self.headers = {**named, "X-Error-Message": message, **_SAFE, **headers}

    def response(self) -> Response:
        """The answer."""
        return JSONResponse({"error": self.message}, self.status, self.headers)


_UNKNOWN_TOKEN = RefusedError(
    401,
    "",
    "Invalid credentials in Authorization header",
    **{"WWW-Authenticate": 'Basic realm="kernels"'},  # a browser asks for another one
)


class _Endpoint:
    """An answer of the protocol, made in the event loop from what is in memory.

    Starlette's own endpoints would take another thread, or most of the time of a request.
    """

    def __init__(self, answer: Callable[[Request], Response], template: str) -> None:
        self._answer, self.template = answer, template

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "POST":
            scope["kernforge.body"] = await _body(request)
        try:
            response = await when_warm(lambda: self._answer(request))
        except RefusedError as refused:
            response = refused.response()
        await response(scope, receive, send)


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk if len(body) <= _LARGEST_BODY else b""  # the rest is read and forgotten
    return body


class Hub:
    """The answers of the protocol."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source, self._access = source, access
        # What is the same for everybody, and never changes.
        self._entries_of = functools.lru_cache(64)(self._make_entries)
        self._tree_of = functools.lru_cache(256)(self._make_tree)
        self._head_of = functools.lru_cache(20_000)(_head)

    def routes(self) -> list[BaseRoute]:
        """The routes; a parameter is one segment, with its slashes encoded."""
        api = "/api/kernels/{owner}/{name}"
        table: tuple[tuple[str, str, Callable[[Request], Response]], ...] = (
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
        )
        return [
            Route(path, _Endpoint(answer, path), methods=[method]) for method, path, answer in table
        ]

    def info(self, request: Request) -> Response:
        """A kernel and the files of a commit."""
        repo_id, commit = self._commit(request)
        files = [{"rfilename": path} for path in self._source.listing(repo_id, commit)]
        document = {
            **self._named(repo_id),
            "_id": sha256(repo_id)[:24],
            "sha": commit[:SHOWN],
            "siblings": files,
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "lastModified": _DATE,
            "createdAt": _DATE,
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
        body = self._tree_of(repo_id, commit, f"{folder}/".lstrip("/"), recursive)
        if not body and folder:
            raise _no_entry(commit)
        caching = self._caching(request, repo_id, commit)
        return Response(body or b"[]", headers={**_SAFE, "Cache-Control": caching})

    def _make_entries(self, repo_id: str, commit: str) -> dict[str, dict[str, Any]]:
        return _entries(self._source.listing(repo_id, commit))

    def _make_tree(self, repo_id: str, commit: str, below: str, recursive: bool) -> bytes:  # noqa: FBT001
        entries = self._entries_of(repo_id, commit).items()
        under = ((path[len(below) :], entry) for path, entry in entries if path.startswith(below))
        found = [entry for path, entry in under if recursive or "/" not in path]
        return bytes(JSONResponse(found).body) if found else b""

    def paths(self, request: Request) -> Response:
        """The files and folders at some paths."""
        repo_id, commit = self._commit(request)
        body: bytes = request.scope["kernforge.body"]
        if len(body) > _LARGEST_BODY or body.count(b"&") > _MOST_PATHS:
            raise RefusedError(400, "", f"A request may name {_MOST_PATHS} paths at most")
        entries = self._entries_of(repo_id, commit)
        paths = parse_qs(body.decode(errors="replace")).get("paths", [])
        return JSONResponse([entries[path] for path in paths if path in entries], headers=_SAFE)

    def resolve(self, request: Request) -> Response:
        """A file."""
        repo_id, commit = self._commit(request)
        path = unquote(request.path_params["path"])
        file = self._source.listing(repo_id, commit).get(path)
        if file is None:
            raise _no_entry(commit)
        head = self._head_of(commit, path, file, self._caching(request, repo_id, commit))
        if (tag := dict(request.scope["headers"]).get(b"if-none-match")) and tag in {
            f'"{file.blob}"'.encode(),
            b"*",
        }:
            return Response(None, 304, {**head.headers, "content-length": "0"})
        if request.method == "HEAD":
            return head
        if link := self._source.link(repo_id, commit, path):
            moved = {"location": link, "cache-control": "no-store", "content-length": "0"}
            return Response(None, 302, {**head.headers, **moved})
        local = self._source.file(repo_id, commit, path)
        return FileResponse(local, headers=head.headers, stat_result=os.stat(local))  # noqa: PTH116 - fast

    def search(self, request: Request) -> Response:
        """The kernels whose names have a text."""
        query = request.query_params
        text, author, limit = (query.get(name, "") for name in ("search", "author", "limit"))
        most = int(limit) if re.fullmatch("[0-9]{1,6}", limit) else _MOST_PATHS
        found = [
            self._named(repo_id)
            for repo_id in self._source.repo_ids()
            if text.lower() in repo_id.lower()
            and repo_id.startswith(f"{author}/" if author else "")
        ]
        return JSONResponse(found[:most], headers=_SAFE)

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
        document = {"type": "user", "id": sha256(name)[:24], "name": name, "fullname": name}
        return JSONResponse({**document, "orgs": []}, headers=_SAFE)

    def _named(self, repo_id: str) -> dict[str, Any]:
        private = not self._access.is_public(repo_id)
        return {"id": repo_id, "author": repo_id.partition("/")[0], "private": private}

    def _kernel(self, request: Request) -> str:
        """The kernel of a request that exists for its reader."""
        repo_id = unquote("{owner}/{name}".format(**request.path_params))
        if not self._source.refs(repo_id):
            asked = self._access.asks_for_token and not READER.get().name
            message = "There is no such kernel, or it is private"
            raise RefusedError(401 if asked else 404, "RepoNotFound", message)
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
        console: prints the access log; None for no log.
    """

    def __init__(self, source: Source, access: Access, console: Console | None = None) -> None:
        self._access, self._console, self._is_printed = access, console, True
        self._hub = Hub(source, access)
        routes = [*self._hub.routes(), Route("/metrics", self._metrics)]
        routes += pages.routes(source, access)
        self._router = Router(routes, redirect_slashes=False, default=_nothing)
        self._prefix = urlsplit(source.url).path
        self._start, self._ids = uuid.uuid4().hex[:12], itertools.count(1)
        self._registry = prometheus_client.CollectorRegistry()
        self._requests = self._counter("requests", "Requests.")
        self._sent = self._counter("sent_bytes", "Bytes of answers.")

    def _counter(self, name: str, text: str) -> Callable[[str, int], prometheus_client.Counter]:
        labels = ("route", "status")
        counter = prometheus_client.Counter(
            f"kernforge_{name}", text, labels, registry=self._registry
        )
        return functools.lru_cache(1000)(counter.labels)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, count it and log it."""
        began, status, size = time.perf_counter(), 500, 0
        identity = f"{self._start}-{next(self._ids):x}"

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
                size = int(dict(headers).get(b"content-length", 0))
                message["headers"] = [*headers, (b"x-request-id", identity.encode())]
            await send(message)

        # A revision or a folder is one segment, whatever it has encoded in it.
        raw: str = scope["raw_path"].decode("latin-1")
        scope["path"] = raw.removeprefix(self._prefix) or "/"
        given = dict(scope["headers"])
        reader = self._access.reader(given.get(b"authorization", b"").decode("latin-1"))
        try:
            await self._answer(reader, scope, receive, counted)
        finally:
            size = 0 if scope["method"] == "HEAD" else size
            template = getattr(scope.get("endpoint"), "template", "page")
            self._requests(template, status).inc()
            if size:
                self._sent(template, status).inc(size)
            if self._console:
                document = {
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "id": identity,
                    "client": (scope.get("client") or ("",))[0],
                    "token": reader.name if reader else "",
                    "method": scope["method"],
                    "path": raw,
                    "status": status,
                    "bytes": size,
                    "ms": round(1000 * (time.perf_counter() - began), 1),
                    "agent": given.get(b"user-agent", b"").decode("latin-1"),
                }
                self._console.line(document, _LINE.format(**document), flush=False)
                if self._is_printed:  # a write for each request would take as long as the rest
                    self._is_printed = False
                    asyncio.get_running_loop().call_later(_LOG_EVERY_S, self._print)

    def _print(self) -> None:
        self._is_printed = True
        if self._console:
            self._console.flush()

    async def _answer(
        self, reader: Reader | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if reader is None:
            await _UNKNOWN_TOKEN.response()(scope, receive, send)
            return
        READER.set(reader)  # of this task, which is one request
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:  # of Starlette's own routes
            refused = RefusedError(error.status_code, "", "This server has no such page")
            await refused.response()(scope, receive, send)
        except KernforgeError as error:
            log.warning("%s", error)  # its text may name paths and hosts of the operator
            busy = isinstance(error, NetworkError)
            message = "The registry of this server cannot be " + ("reached" if busy else "read")
            refused = RefusedError(503 if busy else 500, "", message)
            await refused.response()(scope, receive, send)

    def _metrics(self, _: Request) -> Response:
        text = prometheus_client.generate_latest(self._registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """What a server of reads does not have: writing, telemetry, likes."""
    await _body(Request(scope, receive))  # before the answer, or the client sees a broken line
    await RefusedError(404, "", "This server has no such page").response()(scope, receive, send)


def _no_entry(commit: str) -> RefusedError:
    headers = {"X-Repo-Commit": commit[:SHOWN]}
    return RefusedError(404, "EntryNotFound", "The commit has no such file", **headers)


def _head(commit: str, path: str, file: RemoteFile, caching: str) -> Response:
    """The answer to a HEAD of a file, whose headers all answers with it have."""
    name = quote(path.rpartition("/")[2])
    headers = {
        "X-Repo-Commit": commit[:SHOWN],
        "ETag": f'"{file.blob}"',
        "Content-Length": str(file.size),
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Accept-Ranges": "bytes",
        "Cache-Control": caching,
        **_SANDBOX,
    }
    return Response(None, 200, headers)


def _entries(files: Mapping[str, RemoteFile]) -> dict[str, dict[str, Any]]:
    """The items of a listing by path, sorted: its folders, and its files."""
    entries: dict[str, dict[str, Any]] = {}
    for path, file in files.items():
        for folder in itertools.accumulate(path.split("/")[:-1], "{}/{}".format):
            oid = git_blob(folder.encode())
            entries[folder] = {"type": "directory", "oid": oid, "size": 0, "path": folder}
        entries[path] = {"type": "file", "oid": file.blob, "size": file.size, "path": path}
        if SHA256.fullmatch(file.blob):
            pointer = (
                "version https://git-lfs.github.com/spec/v1\n"
                f"oid sha256:{file.blob}\nsize {file.size}\n"
            ).encode()
            large = {"oid": file.blob, "size": file.size, "pointerSize": len(pointer)}
            entries[path] |= {"oid": git_blob(pointer), "lfs": large}
    return dict(sorted(entries.items()))
