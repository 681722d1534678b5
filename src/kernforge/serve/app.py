# SPDX-License-Identifier: Apache-2.0
"""The protocol of the Hugging Face hub for reading kernels, from any registry.

The hub's clients need no change: ``HF_ENDPOINT`` names the server. A file is shown as a large file
of the hub, whose name is its SHA-256; a hub's small file keeps its git SHA-1. Large files of a
bucket are redirected to the bucket. No state is kept: any number of servers can share a registry.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import prometheus_client
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Message, Receive, Scope, Send

from kernforge.errors import KernforgeError, NetworkError
from kernforge.registry.listing import RemoteFile
from kernforge.registry.names import SHA256, versions
from kernforge.serve.access import READER, Access, Reader
from kernforge.serve.pages import Pages
from kernforge.serve.source import SHOWN, Memo, Source
from kernforge.system.console import Console
from kernforge.system.digest import git_blob

_SAFE = {"X-Content-Type-Options": "nosniff"}
# A published page must not run as a page of this server.
_SANDBOX = {**_SAFE, "Content-Security-Policy": "default-src 'none'; sandbox"}
_LINE = "{time} {client} {method} {path} {status} {bytes} {ms} ms"

log = logging.getLogger("kernforge")


class Hub:
    """The answers of the protocol; a parameter is one segment, with its slashes encoded."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source, self._access = source, access
        self._entries = Memo(self._read_entries, most=64)

    def routes(self) -> list[BaseRoute]:
        """The routes."""
        api = "/api/kernels/{owner}/{name}"
        table = (
            ("/kernels/{owner}/{name}/resolve/{revision}/{path:path}", self.resolve),
            (f"{api}/tree/{{revision}}", self.tree),
            (f"{api}/tree/{{revision}}/{{folder:path}}", self.tree),
            (f"{api}/refs", self.refs),
            (api, self.info),
            (f"{api}/revision/{{revision}}", self.info),
            ("/api/kernels", self.search),
            ("/api/organizations/{owner}/overview", self.organization),
            ("/healthz", self.healthz),
        )
        return [Route(path, answer) for path, answer in table]

    async def resolve(self, request: Request) -> Response:
        """A file."""
        repo_id, commit = await self._commit(request)
        path = unquote(request.path_params["path"])
        file = (await self._source.listing(repo_id, commit)).get(path)
        if file is None:
            raise _no_entry(commit)
        head = _head(commit, path, file, self._caching(request, commit))
        if request.method == "HEAD":
            return head
        content = await self._source.content(repo_id, commit, path)
        if isinstance(content, str):
            moved = {"location": content, "cache-control": "no-store", "content-length": "0"}
            return Response(None, 302, {**head.headers, **moved})
        return FileResponse(content, headers=head.headers, stat_result=os.stat(content))  # noqa: PTH116 - fast

    async def tree(self, request: Request) -> Response:
        """The files and folders of a folder, all in one page."""
        repo_id, commit = await self._commit(request)
        folder = unquote(request.path_params.get("folder", "")).strip("/")
        recursive = request.query_params.get("recursive", "").lower() in {"true", "1"}
        below = f"{folder}/" if folder else ""
        found = [
            entry
            for path, entry in (await self._entries.get(repo_id, commit)).items()
            if path.startswith(below) and (recursive or "/" not in path[len(below) :])
        ]
        if folder and not found:
            raise _no_entry(commit)
        headers = {**_SAFE, "Cache-Control": self._caching(request, commit)}
        return JSONResponse(found, headers=headers)

    async def refs(self, request: Request) -> Response:
        """The branches and tags of a kernel."""
        _, refs = await self._kernel(request)
        tags = set(versions(refs).values())
        document: dict[str, list[dict[str, str]]] = {
            "branches": [],
            "tags": [],
            "converts": [],
            "pullRequests": [],
        }
        for name, commit in refs.items():
            kind, folder = ("tags", "tags") if name in tags else ("branches", "heads")
            document[kind].append(
                {"name": name, "ref": f"refs/{folder}/{name}", "targetCommit": commit[:SHOWN]}
            )
        return JSONResponse(document, headers={**_SAFE, "Cache-Control": "no-cache"})

    async def info(self, request: Request) -> Response:
        """A kernel and the files of a commit."""
        repo_id, commit = await self._commit(request)
        files = [{"rfilename": path} for path in await self._source.listing(repo_id, commit)]
        document = {"id": repo_id, "sha": commit[:SHOWN], "siblings": files}
        return JSONResponse(document, headers=_SAFE)

    async def search(self, request: Request) -> Response:
        """The kernels whose names have a text."""
        text = request.query_params.get("search", "").casefold()
        found = [name for name in await self._source.repo_ids() if text in name.casefold()]
        return JSONResponse([{"id": name} for name in found], headers=_SAFE)

    async def organization(self, request: Request) -> Response:
        """Whether an owner is a trusted publisher."""
        owner = unquote(request.path_params["owner"])
        if not self._source.is_trusted(owner):
            # Of an owner with kernels too: the answer must not show who has private ones.
            raise HTTPException(404, "This server trusts no publisher of that name")
        named = {"name": owner, "fullname": owner, "avatarUrl": "", "details": ""}
        return JSONResponse({**named, "trustedKernelPublisher": True}, headers=_SAFE)

    async def healthz(self, _: Request) -> Response:
        """That the process answers."""
        return PlainTextResponse("ok\n")

    async def _kernel(self, request: Request) -> tuple[str, Mapping[str, str]]:
        """The kernel of a request and its references; it exists for the reader."""
        repo_id = unquote("{owner}/{name}".format(**request.path_params))
        if refs := await self._source.refs(repo_id):
            return repo_id, refs
        status = 401 if self._access.lacks_token() else 404
        raise _refusal(status, "RepoNotFound", "There is no such kernel, or it is private")

    async def _commit(self, request: Request) -> tuple[str, str]:
        """The kernel and the commit of a request."""
        repo_id, _ = await self._kernel(request)
        revision = unquote(request.path_params.get("revision", ""))
        if (commit := await self._source.commit(repo_id, revision)) is None:
            raise _refusal(404, "RevisionNotFound", "The kernel has no such revision")
        return repo_id, commit

    def _caching(self, request: Request, commit: str) -> str:
        """For how long an answer may be cached: a commit never changes."""
        if request.path_params["revision"] != commit[:SHOWN]:
            return "no-cache"
        scope = "private" if self._access.has_tokens else "public"
        return f"{scope}, max-age=31536000, immutable"

    def _read_entries(self, repo_id: str, commit: str) -> dict[str, dict[str, Any]]:
        """The items of a listing by path, sorted: its folders, and its files."""
        entries: dict[str, dict[str, Any]] = {}
        for path, file in self._source.registry.listing(repo_id, commit).items():
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


@functools.lru_cache(20_000)
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


def _error(error: HTTPException | KernforgeError) -> Response:
    if isinstance(error, KernforgeError):
        log.warning("%s", error)  # its text may name paths and hosts of the operator
        busy = isinstance(error, NetworkError)
        message = "The registry of this server cannot be " + ("reached" if busy else "read")
        error = HTTPException(503 if busy else 500, message)
    headers = {**_SAFE, "X-Error-Message": error.detail, **(error.headers or {})}
    return JSONResponse({"error": error.detail}, error.status_code, headers)


def _refusal(status: int, code: str, message: str, **headers: str) -> HTTPException:
    """An error with its name at the hub, which decides the exception of its clients."""
    return HTTPException(status, message, {"X-Error-Code": code, **headers})


def _no_entry(commit: str) -> HTTPException:
    headers = {"X-Repo-Commit": commit[:SHOWN]}
    return _refusal(404, "EntryNotFound", "The commit has no such file", **headers)


async def _unknown_token(_: Scope, __: Receive, ___: Send) -> None:
    headers = {"WWW-Authenticate": 'Basic realm="kernels"'}  # a browser asks for another one
    raise HTTPException(401, "Invalid credentials in Authorization header", headers)


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """What a server of reads does not have: writing, telemetry, likes."""
    async for _ in Request(scope, receive, send).stream():
        pass  # before the answer, or the client sees a broken line
    raise HTTPException(404, "This server has no such page")


class Application:
    """The server as an ASGI application.

    Args:
        console: prints the access log; None for no log.
    """

    def __init__(self, source: Source, access: Access, console: Console | None = None) -> None:
        self._access, self._console = access, console
        routes = [*Hub(source, access).routes(), Route("/metrics", self._metrics)]
        routes += Pages(source, access).routes()
        self._router = Router(routes, redirect_slashes=False, default=_nothing)
        self._prefix = urlsplit(source.url).path
        self._registry = prometheus_client.CollectorRegistry()
        counter = functools.partial(
            prometheus_client.Counter, labelnames=("route", "status"), registry=self._registry
        )
        self._requests = counter("kernforge_requests", "Requests.")
        self._sent = counter("kernforge_sent_bytes", "Bytes of answers.")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, count it and log it."""
        began, status, size = time.perf_counter(), 500, 0

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                if scope["method"] != "HEAD":
                    size = int(dict(message["headers"]).get(b"content-length", 0))
            await send(message)

        # A revision or a folder is one segment, whatever it has encoded in it.
        raw: str = scope["raw_path"].decode("latin-1")
        scope["path"] = raw.removeprefix(self._prefix) or "/"
        given = dict(scope["headers"])
        reader = self._access.reader(given.get(b"authorization", b"").decode("latin-1"))
        try:
            READER.set(reader or Reader())  # of this task, which is one request
            await (self._router if reader else _unknown_token)(scope, receive, counted)
        except (HTTPException, KernforgeError) as error:
            await _error(error)(scope, receive, counted)
        finally:
            labels = (getattr(scope.get("endpoint"), "__name__", "none"), status)
            self._requests.labels(*labels).inc()
            if size:
                self._sent.labels(*labels).inc(size)
            if self._console:
                document = {
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "client": (scope.get("client") or ("",))[0],
                    "token": reader.name if reader else "",
                    "method": scope["method"],
                    "path": raw,
                    "status": status,
                    "bytes": size,
                    "ms": round(1000 * (time.perf_counter() - began), 1),
                    "agent": given.get(b"user-agent", b"").decode("latin-1"),
                }
                self._console.line(document, _LINE.format(**document))

    async def _metrics(self, _: Request) -> Response:
        text = prometheus_client.generate_latest(self._registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)
