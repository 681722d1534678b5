# SPDX-License-Identifier: Apache-2.0
"""The user's package indexes: which files a project has there, and their addresses.

What speaks with an index is imported when one is asked: it takes a third of the time of a build
that finds everything on this machine.
"""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import (
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from kernforge.errors import ToolchainError
from kernforge.system.environment import user_file
from kernforge.toolchain.index import pip_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from packaging.tags import Tag
    from packaging.utils import BuildTag
    from packaging.version import Version

    from kernforge.toolchain.index.http import Transport

_DEFAULT = "https://pypi.org/simple"


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
        from kernforge.toolchain.index.http import Transport  # noqa: PLC0415

        names = pip_config.file_names(env, home=str(user_file("~")), prefix=sys.prefix)
        files = [(name, Path(name).read_text()) for name in names if Path(name).is_file()]
        config = pip_config.read(files, env, default_index=_DEFAULT)
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
        from kernforge.toolchain.index.pages import listed_files  # noqa: PLC0415 - see the module

        name = canonicalize_name(project)
        listed: list[tuple[str, str, str]] = []
        for root in self.config.index_urls:
            if page := self.transport.page(f"{root.rstrip('/')}/{name}/"):
                listed += listed_files(page)
        for link in self.config.find_links:
            place = Path(link.removeprefix("file://"))
            if place.is_dir():
                for path in sorted(place.glob(f"{name.replace('-', '_')}-*")):
                    listed.append((path.name, path.resolve().as_uri(), ""))
            elif page := self.transport.page(link if "://" in link else place.resolve().as_uri()):
                # It may list the files of many projects.
                listed += [file for file in listed_files(page) if _is_of(file[0], name)]
        return tuple(made for file in listed for made in _distribution(*file))


def _is_of(file: str, project: str) -> bool:
    return canonicalize_name(re.split(r"-\d", file, maxsplit=1)[0]) == project


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
