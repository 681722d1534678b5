# SPDX-License-Identifier: Apache-2.0
"""The user's package indexes: which files a project has there, and their addresses.

What speaks with an index is imported when one is asked: it takes a third of the time of a build
that finds everything on this machine.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.utils import (
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from kernforge.errors import NetworkError, ToolchainError
from kernforge.system import untrusted
from kernforge.system.environment import user_file
from kernforge.system.http import SIGN_IN, SIGN_IN_HINT, bare, following
from kernforge.toolchain.index import pip_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from packaging.tags import Tag
    from packaging.utils import BuildTag
    from packaging.version import Version

    from kernforge.toolchain.index.http import Page, Transport

_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A wheel or a source distribution that an index lists.

    Attributes:
        sha256: hex hash as the index gives it; empty when it gives none.
        build: build tag from the name of a wheel, for ordering.
        tags: of a wheel; empty for a source distribution.
    """

    file: str
    url: str
    sha256: str
    version: Version
    build: BuildTag
    tags: frozenset[Tag]


class Index:
    """All configured indexes and link pages as one."""

    def __init__(self, config: pip_config.PipConfig, transport: Transport) -> None:
        self.config = config
        self.transport = transport
        self.distributions = functools.cache(self._list)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Index:
        """Indexes of this user: pip's configuration files and ``PIP_*`` variables."""
        from pypi_simple import PYPI_SIMPLE_ENDPOINT  # noqa: PLC0415

        from kernforge.toolchain.index.http import Transport  # noqa: PLC0415

        names = pip_config.file_names(env, home=str(user_file("~")), prefix=sys.prefix)
        files = [(name, Path(name).read_text()) for name in names if Path(name).is_file()]
        config = pip_config.read(files, env, default_index=PYPI_SIMPLE_ENDPOINT)
        return cls(config, Transport(config))

    def find(self, file: str, sha256: str) -> Distribution:
        """Return the wheel that a lock names."""
        project = file.partition("-")[0]
        named = [wheel for wheel in self.wheels(project) if wheel.file == file]
        fitting = [wheel for wheel in named if wheel.sha256 in {"", sha256}]
        if fitting:
            # The nearest copy first: a file on this machine needs no network.
            return min(fitting, key=lambda wheel: not wheel.url.startswith("file:"))
        if named:
            raise ToolchainError(
                f"{file}: the lock says sha256 {sha256}, the index says {named[0].sha256}",
                hint="the file was replaced upstream or the index is not the one that was locked; "
                "check the index, then write the lock again with `kernforge lock`",
            )
        raise ToolchainError(
            f"{file} is in the lock, and no configured package index lists it",
            hint="check index-url, extra-index-url and find-links in pip's configuration",
        )

    def wheels(self, project: str) -> tuple[Distribution, ...]:
        """Wheels of a project."""
        return tuple(each for each in self.distributions(project) if each.tags)

    def _list(self, project: str) -> tuple[Distribution, ...]:
        """Wheels and source distributions of a project."""
        if not self.config.index_urls and not self.config.find_links:
            raise ToolchainError(
                f"{project} is wanted from a package index, and pip's configuration says no-index",
                hint="unset PIP_NO_INDEX or no-index in pip.conf, or name a directory of wheels "
                "with PIP_FIND_LINKS; a build of which everything is in the store needs neither",
            )
        name = canonicalize_name(project)
        listed: list[tuple[str, str, str]] = []
        for root in self.config.index_urls:
            if page := self.transport.page(f"{root.rstrip('/')}/{name}/"):
                listed += listed_files(name, page)
        for link in self.config.find_links:
            place = Path(link.removeprefix("file://"))
            if place.is_dir():
                for path in sorted(place.glob(f"{name.replace('-', '_')}-*")):
                    listed.append((path.name, path.resolve().as_uri(), ""))
            elif page := self.transport.page(link if "://" in link else place.resolve().as_uri()):
                # It may list the files of many projects.
                listed += [file for file in listed_files(name, page) if _is_of(file[0], name)]
        return tuple(made for file in listed for made in _distribution(*file))


def _is_of(file: str, project: str) -> bool:
    return canonicalize_name(re.split(r"-\d", file, maxsplit=1)[0]) == project


def listed_files(project: str, page: Page) -> list[tuple[str, str, str]]:
    """Name, address and hash of each file of an index page that was not yanked (PEP 503, 691)."""
    from pypi_simple import ProjectPage, UnexpectedRepoVersionWarning  # noqa: PLC0415

    def refused(reason: str) -> ToolchainError:
        return ToolchainError(
            f"{bare(page.url)} is not a page of a package index: {reason}",
            hint=SIGN_IN_HINT
            if reason == SIGN_IN
            else "check index-url, extra-index-url and find-links in pip's configuration",
        )

    is_json, base = page.content_type.endswith("json"), bare(page.url)
    with untrusted.foreign_parser(refused), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnexpectedRepoVersionWarning)  # 1.x can be read
        if is_json:
            listing = ProjectPage.from_json_data(untrusted.parse_json(page.text), base)
        elif page.text.count("<") > untrusted.MEMBERS:
            raise refused(f"it has more than {untrusted.MEMBERS:,} elements")
        else:
            # A link ends where the next one begins: in each other they would take hours.
            html = re.sub(r"(?i)<a(?=\s)", "</a><a", page.text)
            listing = ProjectPage.from_html(project, html, base)
        if len(listing.packages) > untrusted.MEMBERS:
            raise refused(f"it lists more than {untrusted.MEMBERS:,} files")
        files = []
        for package in listing.packages:
            # As pip does: pages of links show other texts.
            name = unquote(urlsplit(package.url).path).rpartition("/")[2]
            if (url := _address(page.url, package.url)) and not package.is_yanked:
                name = package.filename if is_json else name
                files.append((name, url, _sha256(package.digests)))
        if "<form" in page.text and not any(name.endswith(".whl") for name, _, _ in files):
            raise refused(SIGN_IN)
        return files


def _address(base: str, link: str) -> str:
    """The address of a link; empty where it cannot be followed, as from https to http."""
    if base.startswith("file:"):
        return link
    with contextlib.suppress(NetworkError):
        return following(base, link)
    return ""


def _sha256(digests: Mapping[str, str]) -> str:
    """The hash among those of a file; empty where the page gives none, or gives something else."""
    sha256 = digests.get("sha256", "")
    return sha256 if _SHA256.fullmatch(sha256) else ""


def _distribution(file: str, url: str, sha256: str) -> Iterator[Distribution]:
    """A listed file; nothing where its name is not that of a wheel or a source distribution."""
    build: BuildTag = ()
    tags: frozenset[Tag] = frozenset()
    try:
        if file.endswith(".whl"):
            _, version, build, tags = parse_wheel_filename(file)
        else:
            _, version = parse_sdist_filename(file)
    except ValueError:
        return
    url = url.partition("#")[0]
    yield Distribution(file=file, url=url, sha256=sha256, version=version, build=build, tags=tags)
