# SPDX-License-Identifier: Apache-2.0
"""What attacks look for."""

SECRET = "-----BEGIN PRIVATE KEY-----\nsecret\n"  # noqa: S105 - nobody's


def holds(root, text=SECRET):
    """Files of a tree that hold a text."""
    wanted = text.encode()
    return [
        path
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and wanted in path.read_bytes()
    ]
