# SPDX-License-Identifier: Apache-2.0
"""Who may read what from a server with a file of tokens."""

import base64
import hashlib
import re
import signal

import pytest
from support.served import publish, served

from kernforge.errors import UsageError
from kernforge.registry.directory import DirectoryRegistry
from kernforge.serve.access import Access

CI, OTHER = "token-of-ci", "token-of-other"
FILES = {"README.md": b"# secret\n"}


def row(name, token, kernels=None):
    digest = hashlib.sha256(token.encode()).hexdigest()
    row = f'[[token]]\nname = "{name}"\nsha256 = "{digest}"\n'
    return f"{row}kernels = {kernels}\n" if kernels else row


TOKENS = 'public = ["acme/open"]\n' + row("ci", CI) + row("other", OTHER, ["other/*"])


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = DirectoryRegistry(tmp_path_factory.mktemp("registry"))
    for repo_id in ("acme/secret", "acme/open", "other/own"):
        publish(registry, repo_id, FILES, "main")
    return registry


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    path.write_text(TOKENS)
    return path


@pytest.fixture(scope="module")
def server(registry, tokens):
    log = tokens.parent / "log"
    with served(registry.root, log, "--trusted", "acme", "--tokens", tokens) as server:
        yield server


def test_tokens_are_read_again_at_a_hangup(registry, tmp_path):
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(row("ci", CI))
    with served(registry.root, tmp_path / "log", "--tokens", tokens) as server:
        for text, status in ((row("other", OTHER), 200), ("oops", 200), (row("ci", CI), 401)):
            tokens.write_text(text)
            server.process.send_signal(signal.SIGHUP)
            while server.ask("/api/kernels", **bearer(OTHER)).status != status:
                pass
    assert "the tokens stay as they were" in (tmp_path / "log").read_text()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def seen(server, **headers):
    page = server.ask("/search", **headers).body.decode()
    found = re.findall('href="/kernels/([^"]*)"', page)
    assert found == [each["id"] for each in server.ask("/api/kernels", **headers).json()]
    return found


def test_search_shows_what_a_token_may_read(server):
    assert seen(server) == ["acme/open"]
    assert seen(server, **bearer(CI)) == ["acme/open", "acme/secret", "other/own"]
    assert seen(server, **bearer(OTHER)) == ["acme/open", "other/own"]


def test_private_kernel_does_not_exist_for_others(server, registry):
    commit = registry.ref("acme/secret", "main")
    paths = (
        "/api/kernels/acme/secret",
        "/api/kernels/acme/secret/refs",
        f"/api/kernels/acme/secret/tree/{commit}",
        f"/kernels/acme/secret/resolve/{commit}/README.md",
        "/kernels/acme/secret/resolve/main/README.md",
    )
    for path in paths:
        without, other = server.ask(path), server.ask(path, **bearer(OTHER))
        assert (without.status, without.headers["X-Error-Code"]) == (401, "RepoNotFound")
        assert (other.status, other.headers["X-Error-Code"]) == (404, "RepoNotFound")
        absent = server.ask(path.replace("secret", "absent"), **bearer(OTHER))
        assert absent.body == other.body
        assert server.ask(path, **bearer(CI)).status == 200
    file = server.ask(paths[-1], **bearer(CI))
    assert file.body == FILES["README.md"]
    by_commit = server.ask(paths[-2], **bearer(CI)).headers
    assert by_commit["Cache-Control"].startswith("private")


def test_unknown_token_is_refused(server):
    answer = server.ask("/api/kernels/acme/open", **bearer("wrong"))
    assert (answer.status, answer.headers["X-Error-Code"]) == (401, None)


def test_browser_sends_the_token_as_a_password(server):
    pair = base64.b64encode(f"me:{CI}".encode()).decode()
    assert "acme/secret" in seen(server, Authorization=f"Basic {pair}")


@pytest.mark.parametrize(
    "text",
    [
        "public = 5",
        "[[token]]\nname = 'x'",
        "[[token]]\nname = 'x'\nsha256 = 'abc'",
        "[[token]]\nname = 'x'\nsha256 = 5",
        row("x", CI, '"acme/*"'),
    ],
)
def test_malformed_file_of_tokens_is_refused(tmp_path, text):
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"tokens\.toml cannot be read"):
        Access(path)
