# SPDX-License-Identifier: Apache-2.0
"""Content of registries."""

from kernforge.system.digest import sha256

REPO = "owner/toy"


def publish_file(registry, tag, text):
    """Publish one file without the publisher, under a tag and its branch."""
    with registry.writing(REPO):
        digest = sha256(text)
        registry.add_blob(REPO, digest, text.encode())
        new, _ = registry.add_snapshot(REPO, {"build/torch-cpu/sub/a.py": digest})
        for name in (tag, tag.partition(".")[0]):
            registry.set_ref(REPO, name, new)
    return new
