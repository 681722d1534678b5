# SPDX-License-Identifier: Apache-2.0
"""The pages of a server: kernels, search, and a page for each kernel.

They need no scripts and request nothing from other hosts. All that a registry says is untrusted:
the templates escape it, and the pages' own policy allows styles and images of this server alone.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from kernforge.application.download import parse_platform
from kernforge.artifact.gpu import GENERATIONS
from kernforge.artifact.version import Version2, in_order
from kernforge.errors import KernforgeError, UsageError
from kernforge.loader.host import Host
from kernforge.registry import names
from kernforge.registry.api import Answer
from kernforge.registry.names import LONGEST_REF
from kernforge.serve import card, view
from kernforge.serve.access import Access
from kernforge.serve.source import Memo, Source
from kernforge.system import tables
from kernforge.system.digest import sha256
from kernforge.system.environment import Environment
from kernforge.toolchain.releases import torch_releases

_HERE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]+)?")
_MOST_LISTED = 60
_RELEASE_LASTS_S = 60.0  # for a commit never changes, but a trust policy does

log = logging.getLogger("kernforge")


class Version(NamedTuple):
    """A version of a kernel, or a branch where there are no versions.

    Attributes:
        number: such as ``1.2.3``; empty for a branch.
        major: the major version whose newest commit it is; None of older ones.
    """

    ref: str
    commit: str
    number: str
    major: int | None

    @property
    def label(self) -> str:
        """Its name on the pages."""
        return self.number or self.ref


def versions_of(refs: Mapping[str, str]) -> list[Version]:
    """The versions among references, newest first."""
    tags = names.versions(refs)
    newest = {number[0]: tag for number, tag in tags.items()}
    majors = {tag: major for major, tag in newest.items()}
    numbers = {tag: names.dotted(number) for number, tag in reversed(tags.items())}
    if not tags:
        majors = {f"v{major}": major for major in reversed(names.majors(refs))}
        numbers = dict.fromkeys([*majors, *refs], "")
    return [Version(ref, refs[ref], each, majors.get(ref)) for ref, each in numbers.items()]


class Pages:
    """The pages."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source, self._access = source, access
        self._environment = Environment.live()
        self._releases = Memo(self._read_release, _RELEASE_LASTS_S, most=200)
        loader = jinja2.FileSystemLoader(_HERE / "templates")
        self._templates = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
        self._templates.filters |= {
            "bytes": lambda count: tables.size(count) or "0 kB",
            "card": card.render,
            "counted": tables.counted,
            "in_order": in_order,
        }
        self._templates.globals |= {
            "root": urlsplit(source.url).path,
            # With a hash in its address, a browser keeps a file until it changes.
            "static": {p.name: sha256(p.read_bytes())[:8] for p in (_HERE / "static").iterdir()},
            "releases": torch_releases(),
            "generations": GENERATIONS,
        }

    def routes(self) -> list[BaseRoute]:
        """The routes."""
        return [
            Route("/", self.search),
            Route("/search", self.search),
            Route("/kernels/{owner}/{name}", self.kernel),
            Route("/login", self.login),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ]

    async def login(self, request: Request) -> Response:
        """Ask a browser for a token, as the password of any name."""
        if not self._access.lacks_token():
            return RedirectResponse(f"{self._templates.globals['root']}/")
        response = await self._page(request, "error", 401, title="Give a token as the password")
        response.headers["WWW-Authenticate"] = 'Basic realm="kernels"'
        return response

    async def search(self, request: Request) -> Response:
        """The kernels with a text in their name, those whose name begins with it first."""
        query = request.query_params.get("q", "").strip()[:100]
        text = query.casefold()
        found = [name for name in await self._source.repo_ids() if text in name.casefold()]
        found.sort(key=lambda name: not name.casefold().partition("/")[2].startswith(text))
        kernels = await asyncio.gather(*map(self._listed, found[:_MOST_LISTED]))
        page = "home" if request.scope["path"] == "/" else "search"
        return await self._page(request, page, query=query, kernels=kernels, total=len(found))

    async def kernel(self, request: Request) -> Response:
        """A version of a kernel."""
        repo_id = "{owner}/{name}".format_map(request.path_params)
        form = {key: value.strip()[:LONGEST_REF] for key, value in request.query_params.items()}
        versions = versions_of(await self._source.refs(repo_id))
        label = form.get("version") or (versions[0].label if versions else "")
        version = next((each for each in versions if label in {each.label, each.ref}), None)
        if version is None:
            title = f"{repo_id} has no version {label}"
            title = title if versions else "There is no such kernel, or it is private"
            return await self._page(request, "error", 404, title=title)
        release = await self._releases.get(repo_id, version.ref, version.commit)
        fit, problem = None, ""
        if form.get("torch"):
            try:
                fit = view.fit(release.builds, _host(form))
            except UsageError as error:
                problem = f"{error.message}; {error.hint}"
        return await self._page(
            request,
            "kernel",
            repo_id=repo_id,
            version=version,
            versions=versions,
            release=release,
            form=form,
            fit=fit,
            problem=problem,
            trusted=self._source.is_trusted(repo_id.partition("/")[0]),
        )

    def _read_release(self, repo_id: str, ref: str, commit: str) -> view.Release:
        request = names.request(repo_id, revision=ref)
        answer = Answer(self._source.registry, request, commit, request.major)
        return view.read_release(answer, self._environment)

    async def _listed(self, repo_id: str) -> dict[str, Any]:
        """A kernel in a list, with its newest version if that can be read."""
        try:
            version, *_ = versions_of(await self._source.refs(repo_id))
            files = await self._source.listing(repo_id, version.commit)
        except (KernforgeError, ValueError) as error:
            log.warning("%s", error)  # it may name paths and hosts of the operator
            return {"id": repo_id}
        found = view.variants_of(files)
        backends = {variant.backend.name for variant in map(view.parse, found) if variant}
        return {"id": repo_id, "version": version, "variants": len(found), "backends": backends}

    async def _page(
        self, request: Request, name: str, status: int = 200, **values: Any
    ) -> Response:
        host = request.url.netloc if _HOST.fullmatch(request.url.netloc) else "localhost"
        values["url"] = self._source.url or f"{request.url.scheme}://{host}"
        values["anonymous"] = self._access.lacks_token()
        template = self._templates.get_template(f"{name}.html")
        html = await asyncio.to_thread(template.render, values)  # long for many variants
        return HTMLResponse(html, status, _HEADERS)


def _host(form: Mapping[str, str]) -> Host:
    """The machine of the form."""
    torch, gpu = Version2.leading(form["torch"]) or form["torch"], form.get("gpu", "")
    host = parse_platform(f"torch{torch}-{form.get('backend')}-{form.get('platform')}")
    gcn_arch = gpu if gpu.startswith("gfx") else None
    return replace(host, capability=Version2.leading(gpu), gcn_arch=gcn_arch)
