# SPDX-License-Identifier: Apache-2.0
"""The pages of a server: kernels, search, and a page for each kernel.

They need no scripts and request nothing from other hosts. All that a registry says is untrusted:
the templates escape it, and the pages' own policy allows styles and images of this server alone.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from kernforge.application.download import parse_platform
from kernforge.artifact.version import Version2, in_order
from kernforge.errors import KernforgeError, TrustError, UsageError
from kernforge.loader.host import Host
from kernforge.registry import names
from kernforge.registry.api import Answer
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import LONGEST_REF
from kernforge.serve import card, view
from kernforge.serve.access import READER, Access
from kernforge.serve.source import Memo, Source
from kernforge.serve.view import Release
from kernforge.system import tables
from kernforge.system.digest import sha256
from kernforge.system.environment import Environment
from kernforge.toolchain.cuda_arch import GENERATIONS
from kernforge.toolchain.releases import torch_releases
from kernforge.trust.admission import Admission, Case
from kernforge.trust.policy import Subject

_HERE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]+)?")
_NEWEST, _FOUND = 12, 60
_RELEASE_LASTS_S = 60.0  # for a commit never changes, but a trust policy does

log = logging.getLogger("kernforge")


def routes(source: Source, access: Access) -> list[BaseRoute]:
    """The routes of the pages."""
    pages = _Pages(source, access)
    # Pages that wait for a slow registry must not take the threads that send files.
    pool = ThreadPoolExecutor(8, "pages")

    def threaded(page: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            run = contextvars.copy_context().run
            return await asyncio.get_running_loop().run_in_executor(pool, run, page, request)

        return endpoint

    return [
        Route("/", threaded(pages.home)),
        Route("/search", threaded(pages.search)),
        Route("/kernels/{owner}/{name}", threaded(pages.kernel)),
        Route("/login", threaded(pages.login)),
        Mount("/static", StaticFiles(directory=_HERE / "static")),
    ]


class _Pages:
    """The pages, for threads that may wait for the registry."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source, self._access = source, access
        self._root = urlsplit(source.url).path
        self._environment = Environment.live()
        self._pool = ThreadPoolExecutor(16, "kernels")
        self._releases = Memo(self._read_release, self._pool, _RELEASE_LASTS_S, most=200)
        loader = jinja2.FileSystemLoader(_HERE / "templates")
        self._templates = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
        self._templates.filters["bytes"] = lambda count: tables.size(count) or "0 kB"
        self._templates.filters |= {"card": card.render, "counted": tables.counted}
        self._templates.filters["in_order"] = in_order
        self._templates.globals |= {
            "root": self._root,
            # With a hash in its address, a browser keeps a file until it changes.
            "static": {p.name: sha256(p.read_bytes())[:8] for p in (_HERE / "static").iterdir()},
            "releases": torch_releases(),
            "generations": GENERATIONS,
        }

    def login(self, request: Request) -> Response:
        """Ask a browser for a token, as the password of any name."""
        if not self._anonymous:
            return RedirectResponse(f"{self._root}/")
        response = self._page(request, "error", 401, title="Give a token as the password")
        response.headers["WWW-Authenticate"] = 'Basic realm="kernels"'
        return response

    def home(self, request: Request) -> Response:
        """The newest kernels, where the registry knows when they were published."""
        repo_ids = self._source.repo_ids()
        newest = sorted(repo_ids, key=self._when, reverse=True)[:_NEWEST]
        kernels = [*self._pool.map(self._listed, newest)]
        return self._page(request, "home", kernels=kernels, total=len(repo_ids))

    def search(self, request: Request) -> Response:
        """The kernels with a text in their name, those whose name begins with it first."""
        query = request.query_params.get("q", "").strip()[:100]
        text = query.casefold()
        found = [name for name in self._source.repo_ids() if text in name.casefold()]
        found.sort(key=lambda name: not name.casefold().partition("/")[2].startswith(text))
        kernels = [*self._pool.map(self._listed, found[:_FOUND])]
        return self._page(request, "search", query=query, kernels=kernels, total=len(found))

    def kernel(self, request: Request) -> Response:
        """A version of a kernel."""
        repo_id = "{owner}/{name}".format_map(request.path_params)
        form = {key: value.strip()[:LONGEST_REF] for key, value in request.query_params.items()}
        versions = self._versions(repo_id)
        label = form.get("version") or (versions[0]["label"] if versions else "")
        version = next((v for v in versions if label in {v["label"], v["ref"]}), None)
        if version is None:
            title = f"{repo_id} has no version {label}"
            title = title if versions else "There is no such kernel, or it is private"
            return self._page(request, "error", 404, title=title)
        release = self._releases.get((repo_id, version["ref"], version["commit"]))
        fit = problem = None
        if form.get("torch"):
            try:
                fit = view.fit(release.builds, _host(form))
            except UsageError as error:
                problem = f"{error.message}; {error.hint}"
        by_name = {build.name: build for build in release.builds}
        return self._page(
            request,
            "kernel",
            repo_id=repo_id,
            version=version,
            versions=versions,
            release=release,
            builds=[by_name[name] for name in (fit.reasons if fit else by_name)],
            form=form,
            fit=fit,
            problem=problem,
            trusted=self._source.is_trusted(repo_id.partition("/")[0]),
        )

    def _read_release(self, key: tuple[str, str, str]) -> Release:
        """A release, by its kernel, a reference to it and its commit."""
        repo_id, ref, commit = key
        source, wanted = self._source, names.request(repo_id, revision=ref)
        subject = Subject.of(Answer(source.registry, wanted, commit, wanted.major))
        # Consent is each reader's own; the page says what the policy demands beyond it.
        case = Case(subject, self._environment, trust_remote_code=True)

        def admit(document: bytes, bundle: bytes | None) -> Admission:
            try:
                return case.admit(document, lambda: bundle)[0]
            except TrustError as error:  # without the place of the registry
                raise TrustError(error.message.removeprefix(f"{subject}: ")) from error

        read = functools.partial(source.registry.small_file, repo_id, commit)
        return view.read_release(source.listing(repo_id, commit), read, admit)

    def _versions(self, repo_id: str) -> list[dict[str, Any]]:
        """The versions of a kernel, newest first; its branches where it has none.

        ``major`` is the major version whose newest version it is; None of other versions.
        """
        refs = self._source.refs(repo_id)
        tags = names.versions(refs)
        newest = {number[0]: tag for number, tag in tags.items()}
        majors = {tag: major for major, tag in newest.items()}
        rows = {tag: names.dotted(number) for number, tag in reversed(tags.items())}
        if not tags:
            majors = {f"v{major}": major for major in reversed(names.majors(refs))}
            rows = dict.fromkeys([*majors, *refs], "")
        return [
            {
                "label": number or ref,
                "ref": ref,
                "commit": refs[ref],
                "number": number,
                "major": majors.get(ref),
                "published": _day(self._when(repo_id, ref)),
            }
            for ref, number in rows.items()
        ]

    def _when(self, repo_id: str, ref: str = "main") -> float:
        """When a reference was written, as far as a directory knows it; else 0."""
        if not isinstance(self._source.registry, DirectoryRegistry):
            return 0.0
        try:
            return (self._source.registry.link_root(repo_id) / "refs" / ref).stat().st_mtime
        except OSError:
            return 0.0

    def _listed(self, repo_id: str) -> dict[str, Any]:
        """A kernel in a list, in a thread that knows no reader: it was asked for before."""
        kernel: dict[str, Any] = {"id": repo_id, "version": None}
        try:
            for version in self._versions(repo_id)[:1]:
                found = self._source.registry.variants(repo_id, version["commit"])
                backends = {variant.backend.name for variant in map(view.parse, found) if variant}
                kernel |= {"version": version, "variants": len(found), "backends": backends}
        except KernforgeError as error:
            log.warning("%s", error)  # it may name paths and hosts of the operator
        return kernel

    @property
    def _anonymous(self) -> bool:
        return self._access.asks_for_token and not READER.get().name

    def _page(self, request: Request, name: str, status: int = 200, **values: Any) -> Response:
        host = request.url.netloc if _HOST.fullmatch(request.url.netloc) else "localhost"
        url = self._source.url or f"{request.url.scheme}://{host}"
        template = self._templates.get_template(f"{name}.html")
        html = template.render({"query": "", "url": url, "anonymous": self._anonymous, **values})
        return HTMLResponse(html, status, _HEADERS)


def _host(form: Mapping[str, str]) -> Host:
    """The machine of the form."""
    torch, gpu = Version2.leading(form["torch"]) or form["torch"], form.get("gpu", "")
    host = parse_platform(f"torch{torch}-{form.get('backend')}-{form.get('platform')}")
    gcn_arch = gpu if gpu.startswith("gfx") else None
    return replace(host, capability=Version2.leading(gpu), gcn_arch=gcn_arch)


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat() if seconds else ""
