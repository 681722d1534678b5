# SPDX-License-Identifier: Apache-2.0
"""Pages and files of indexes; the limits of every client are in attacks_on_us."""

import json

import pytest
from support import bad_server

from kernforge.errors import NetworkError, ToolchainError
from kernforge.system.http import basic
from kernforge.toolchain.index.http import Page, Transport
from kernforge.toolchain.index.index import Index, listed_files
from kernforge.toolchain.index.pip_config import PipConfig

WHEEL, HASH = "kit-1.0-py3-none-any.whl", "ab" * 32
PLACE = f"https://files.example/simple/kit/{WHEEL}"
LINK = f'<a href="{WHEEL}#sha256={HASH}">kit</a>'


@pytest.fixture
def transport():
    found = Transport(PipConfig(index_urls=(), timeout_s=5))
    yield found
    found.close()


def read(transport, url, **part):
    with transport.body(url, **part) as body:
        return body.read()


def test_a_range_that_is_longer_than_asked_for_is_left(transport):
    def answer(handler):
        handler.start(206, Content_Range="bytes 10-19/1000")
        while not handler.server.stopped.is_set():
            handler.wfile.write(b"x" * 65536)

    with bad_server.serve(answer) as server:
        for part, most in (({"start": 10, "stop": 20}, 10), ({"start": -100}, 100)):
            with pytest.raises(NetworkError, match=f"more than the expected {most} bytes"):
                read(transport, f"{server.url}/a.whl", **part)


def test_an_interrupted_body_is_an_error(transport):
    def answer(handler):
        handler.start(Content_Length=1000)
        handler.wfile.write(b"x" * 10)

    with bad_server.serve(answer) as server, pytest.raises(NetworkError, match="IncompleteRead"):
        read(transport, f"{server.url}/a.whl")


def listed(text, kind="text/html", url="https://files.example/simple/kit/"):
    return listed_files("kit", Page(url=url, text=text, content_type=kind))


NESTED = '<a href="http://x/y">' * 5000  # links in each other would take hours


@pytest.mark.parametrize(
    "page",
    [
        f'{LINK}<a href="old/{WHEEL}" data-yanked="broken">kit</a>',
        f'<a href="file:///x/{WHEEL}"></a><a href="https://h:p/{WHEEL}"></a>{NESTED}{LINK}',
        f'<meta name="pypi:repository-version" content="1.99">{LINK}<form>',
    ],
)
def test_links_of_html_that_can_be_followed_are_listed(page):
    assert listed(page) == [(WHEEL, PLACE, HASH)]


def document(*files, edition="1.1"):
    return json.dumps({"meta": {"api-version": edition}, "name": "kit", "files": files})


def test_links_of_json_that_can_be_followed_are_listed():
    file = {"filename": WHEEL, "url": WHEEL, "hashes": {"sha256": HASH}, "yanked": False}
    pages = document(file, {**file, "yanked": "broken"}, {**file, "url": "ftp://x/y"})
    assert listed(pages, "application/vnd.pypi.simple.v1+json") == [(WHEEL, PLACE, HASH)]
    bare = {"filename": WHEEL, "url": "/a.whl", "hashes": {"md5": "1"}}
    assert listed(document(bare), "application/json")[0][2] == ""


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (document(edition="2.0"), "application/json", r"version \(2.0\)"),
        ("[]", "application/json", "is not a page of a package index"),
        ('<meta name="pypi:repository-version" content="2.0">', "text/html", r"version \(2.0\)"),
        (f'<a href="https://[::/{WHEEL}"></a>{LINK}', "text/html", "Invalid IPv6 URL"),
        ('<form action="/login"><input type="password"></form>', "text/html", "a sign-in page?"),
    ],
)
def test_what_is_no_page_of_an_index_is_refused(text, kind, words):
    with pytest.raises(ToolchainError, match=words):
        listed(text, kind)


def test_a_login_of_the_address_goes_to_its_host_alone():
    """With a redirect and the links of a page, too."""
    login = basic("me@home", "s:crt")

    def page(handler):
        if handler.path == "/simple/kit/":
            handler.start(301, Location=f"{handler.server.url}/moved/", Content_Length=0)
        else:
            handler.start(Content_Type="text/html")
            links = (f"{other.url}/{WHEEL}", f"/{WHEEL}")
            handler.wfile.write("".join(f'<a href="{link}"></a>' for link in links).encode())

    with bad_server.serve(lambda handler: handler.json({})) as other, bad_server.serve(page) as own:
        config = PipConfig(index_urls=(own.url.replace("//", "//me%40home:s%3Acrt@") + "/simple",))
        transport = Transport(config)
        for each in Index(config, transport).distributions("kit"):
            read(transport, each.url)
        transport.close()
        assert (set(own.tokens), set(other.tokens)) == ({login}, {""})
        assert len(own.requests) == 3
