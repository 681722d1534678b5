# SPDX-License-Identifier: Apache-2.0
"""Content of registries."""

from kernforge.errors import NotPublishedError
from kernforge.registry import api as registry_api
from kernforge.registry.names import request
from kernforge.system.digest import sha256

REPO = "owner/toy"
LIBRARY = "0123456789abcdef" * 40_000


def publish_file(registry, tag, text):
    """Publish one file without the publisher, under a tag and its branch."""
    with registry.writing(REPO):
        digest = sha256(text)
        registry.add_blob(REPO, digest, text.encode())
        new = registry.add_snapshot(REPO, {"build/torch-cpu/sub/a.py": digest})
        for name in (tag, tag.partition(".")[0]):
            registry.set_ref(REPO, name, new)
    return new


def commit_of(registry, repo_id, version=None, revision=None) -> str | None:
    """The commit of a version or revision; None without."""
    try:
        return registry_api.find(registry, request(repo_id, version, revision)).commit
    except NotPublishedError:
        return None
