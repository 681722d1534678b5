# SPDX-License-Identifier: Apache-2.0
"""A hub, or who stands before it, sends without end, a byte at a time, or leads elsewhere."""

import contextlib
import operator
import resource
import subprocess

import pytest
from support import bad_server

from kernforge.errors import KernforgeError, NetworkError, RegistryError, UsageError
from kernforge.registry.hub import HubEndpoint, HubRegistry, HubTransport
from kernforge.registry.oci import OciTransport
from kernforge.registry.static import StaticTransport
from kernforge.system import http, untrusted
from kernforge.system.digest import sha256
from kernforge.toolchain.index.http import Transport
from kernforge.toolchain.index.index import listed_files
from kernforge.toolchain.index.pip_config import PipConfig

REPO = "owner/toy"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LIBRARY = bytes(range(256)) * 4000


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(http, "_WAITS_S", (0.0, 0.0, 0.0))


@pytest.fixture
def short(monkeypatch):
    """What is slow is so within a moment."""
    monkeypatch.setattr(untrusted, "_WINDOW_S", 0.3)


def endpoint(url, tmp_path, token=None):
    return HubEndpoint(url=url, cache=tmp_path / "hub", token=token)


def client(url, tmp_path, token=None):
    return HubTransport(endpoint(url, tmp_path, token))


def index_page(url, _tmp_path):
    transport = Transport(PipConfig(index_urls=()))
    try:
        return transport.page(f"{url}/simple/x/")
    finally:
        transport.close()


DOORS = {
    "hub": lambda url, tmp_path: client(url, tmp_path).refs(REPO),
    "web server": lambda url, tmp_path: StaticTransport(url, tmp_path / "netrc").refs(REPO),
    "oci": lambda url, _tmp_path: OciTransport(url.replace("http", "oci+http")).refs(REPO),
    "index": index_page,
}


@pytest.mark.parametrize("answer", bad_server.ENDLESS.values(), ids=bad_server.ENDLESS)
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_answer_without_end_is_refused(tmp_path, short, monkeypatch, door, answer):
    monkeypatch.setattr(untrusted, "DOCUMENT", 10_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with bad_server.serve(answer) as server, pytest.raises(KernforgeError) as error:
        door(server.url, tmp_path)
    assert error.value.hint
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("door", ["index", "oci"])
def test_many_slow_answers_have_one_deadline(tmp_path, monkeypatch, door):
    monkeypatch.setattr(http, "ANSWER_S", 0.6)

    def answer(handler):
        if handler.command == "GET" and "/tags/" in handler.path:
            return handler.json({"tags": [f"v{number}" for number in range(2000)]})
        handler.server.stopped.wait(0.1)
        return bad_server.in_circles(handler) if door == "index" else handler.json({})

    slow = pytest.raises(NetworkError, match="no complete answer in 1 seconds")
    with bad_server.serve(answer) as server, slow:
        DOORS[door](server.url, tmp_path)
    assert len(server.requests) < 100


PLACES = (
    *("http://[::", "http://h:99999999/", "http://h:x/", "http://a..b/", "http://", "//", "http:x"),
    *("http://u:p@h/", "http://h\\@x/", "http://h h/", "http://\xe9/", "http://h\x01/", "\x1b[2J"),
    *("ftp://127.0.0.1/", "file:///etc/passwd", "data:,x", f"http://{'a' * 64}.example/"),
)


@pytest.mark.parametrize("place", PLACES)
def test_odd_address_in_an_answer_is_refused(tmp_path, monkeypatch, place):
    monkeypatch.setattr(http, "ANSWER_S", 0.6)  # some are those of the same page

    def answer(handler):
        if handler.path.startswith("/v2/"):
            if handler.path.endswith("/list?n=1000"):
                return handler.start(401, WWW_Authenticate=f'Bearer realm="{place}"')
        elif "/tree/" in handler.path:
            return handler.json([], Link=f'<{place}>; rel="next"')
        return handler.start(302, Location=place, Content_Length=0)

    doors = {**DOORS, "listing": lambda url, tmp: client(url, tmp).files(REPO, COMMIT)}
    with bad_server.serve(answer) as server:
        for door in doors.values():
            with pytest.raises(KernforgeError) as error:
                door(server.url, tmp_path)
            assert error.value.message.isprintable()


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_sign_in_page_is_named(tmp_path, door):
    def answer(handler):
        handler.start(Content_Type="text/html")
        handler.wfile.write(b"\n<!doctype html><form action='/login'><input></form>")

    with bad_server.serve(answer) as server, pytest.raises(KernforgeError) as error:
        listed_files("x", door(server.url, tmp_path))
    assert "a sign-in page?" in error.value.message
    assert "browser" in error.value.hint


REQUESTS = {
    "references": lambda found: found.hub.refs(REPO),
    "a listing": lambda found: found.hub.files(REPO, COMMIT),
    "a search": lambda found: found.search("x", 5),
    "an overview": lambda found: found.is_trusted_publisher("owner"),
}
REFS = {"branches": [{"name": "v1", "targetCommit": COMMIT}], "tags": []}


@pytest.mark.parametrize("ask", REQUESTS.values(), ids=REQUESTS)
def test_malformed_answer_is_refused(tmp_path, ask):
    found = []
    for document in (None, 5, "x", [[]], [5], {"branches": 5}, {"branches": [[]]}):
        answer = operator.methodcaller("json", document)
        with bad_server.serve(answer) as server, contextlib.suppress(RegistryError):
            found.append(ask(HubRegistry(endpoint(server.url, tmp_path))))
    assert not any(found)


@pytest.mark.parametrize("status", [302, 401, 404, 407, 503])
def test_headers_outside_ascii_give_typed_errors(tmp_path, status):
    names = ["X-Error-Message", "X-Error-Code", "Via", "Location", "Set-Cookie", "Content-Type"]
    headers = {**dict.fromkeys(names, "caf\xe9"), "Retry-After": "\xb2"}  # a digit, no number

    def answer(handler):
        handler.start(status, Content_Length=2, **headers)
        handler.wfile.write(b"no")

    with bad_server.serve(answer) as server, pytest.raises((RegistryError, NetworkError)):
        client(server.url, tmp_path).refs(REPO)


def test_error_text_is_short_and_printable(tmp_path):
    def answer(handler):
        handler.start(400, X_Error_Message="\x1b[2J" + "x" * 1000, Content_Length=0)

    with bad_server.serve(answer) as server, pytest.raises(RegistryError) as error:
        client(server.url, tmp_path).refs(REPO)
    assert error.value.message.isprintable()
    assert len(error.value.message) < 500


@pytest.mark.parametrize(("after", "wait_s"), [("30", 30), ("1000000000", 60), ("-1", 0)])
def test_retry_after_is_limited_to_a_minute(tmp_path, after, wait_s):
    def answer(handler):
        if len(handler.server.requests) == 1:
            handler.start(429, Content_Length=0, Retry_After=after)
        else:
            handler.json(REFS)

    waits = []
    with bad_server.serve(answer) as server:
        found = client(server.url, tmp_path)
        assert http.again(lambda: found.refs(REPO), waits.append) == {"v1": COMMIT}
    assert waits == [wait_s]


def test_endless_listing_is_refused(tmp_path, monkeypatch):
    def answer(handler):
        number = len(handler.server.requests)
        files = [
            {"type": "file", "path": f"{number}/{n}", "size": 1, "oid": "0" * 40}
            for n in range(500)
        ]
        place = f"{handler.server.url}/api/next?{number}"
        handler.json(files, Link=f'<{place}>; rel="next"')

    monkeypatch.setattr(untrusted, "DOCUMENT", 1_000_000)
    too_many = pytest.raises(NetworkError, match="more than the expected 1,000,000 bytes")
    with bad_server.serve(answer) as server, too_many:
        client(server.url, tmp_path).files(REPO, COMMIT)


@pytest.mark.parametrize("way", ["next page", "redirect"])
def test_another_host_gets_no_token(tmp_path, way):
    with bad_server.serve(lambda handler: handler.json([])) as other:
        moved = other.url.replace("127.0.0.1", "localhost")

        def answer(handler):
            if way == "redirect":
                handler.start(302, Location=f"{moved}{handler.path}", Content_Length=0)
            else:
                handler.json([], Link=f'<{moved}/more>; rel="next"')

        with bad_server.serve(answer) as server:
            assert client(server.url, tmp_path, "hf_secret").files(REPO, COMMIT) == {}
            assert server.tokens == ["Bearer hf_secret"]
        assert other.tokens == [""]


def download(answer, tmp_path, size):
    """What is said about a download that fails."""

    def listed_or_file(handler):
        if "/tree/" in handler.path:
            item = {"type": "file", "path": "build/x/a", "size": size, "oid": "0" * 40}
            handler.json([item])
        else:
            answer(handler)

    with bad_server.serve(listed_or_file) as server:
        with pytest.raises(KernforgeError) as error:
            HubRegistry(endpoint(server.url, tmp_path)).fetch(REPO, COMMIT, "x")
        return error.value.message


def test_endless_or_slow_file_is_refused(tmp_path, short):
    assert "is not what" in download(bad_server.endless, tmp_path, 1000)
    assert not list((tmp_path / "hub").glob("*/blobs/*"))
    assert "bytes in " in download(bad_server.dripping, tmp_path, 10_000_000)


def test_interrupted_download_is_continued(hub, tmp_path):
    hub.add(REPO, "v1", {"build/torch-cpu/toy.so": LIBRARY})
    commit = hub.repos[REPO].branches["v1"]
    hub.fault("/cdn/", "cut", 4)
    first = HubRegistry(endpoint(hub.url, tmp_path))
    with pytest.raises(NetworkError, match="cannot be reached"):
        first.fetch(REPO, commit, "torch-cpu")
    (part,) = (tmp_path / "hub").glob("*/blobs/tmp-*")
    have = part.stat().st_size
    assert 0.9 * len(LIBRARY) < have < len(LIBRARY)
    second = HubRegistry(endpoint(hub.url, tmp_path))
    path = second.fetch(REPO, commit, "torch-cpu")
    assert (path / "toy.so").read_bytes() == LIBRARY
    assert any(each.startswith(f"bytes={have}-") for each in hub.ranges)
    assert not list((tmp_path / "hub").glob("*/blobs/tmp-*"))


def test_tampered_partial_download_is_discarded(hub, tmp_path):
    hub.add(REPO, "v1", {"build/torch-cpu/toy.so": LIBRARY})
    commit = hub.repos[REPO].branches["v1"]
    registry = HubRegistry(endpoint(hub.url, tmp_path))
    blob = registry.listing(REPO, commit)["build/torch-cpu/toy.so"].blob
    part = registry.link_root(REPO) / "blobs" / f"tmp-kernforge-{sha256(f'{blob} 0')[:32]}"
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(b"evil" * 1000)
    assert (registry.fetch(REPO, commit, "torch-cpu") / "toy.so").read_bytes() == LIBRARY
    assert "bytes=4000-" in {each[:11] for each in hub.ranges}, "it was continued first"


# -- connections ------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["hub", "index"])
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
def test_untrusted_certificate_is_an_error(tmp_path, monkeypatch, variable, door):
    certificate = bad_server.self_signed(tmp_path / "server.pem")
    with bad_server.serve(lambda h: h.json(REFS), certificate=certificate) as server:
        with pytest.raises(NetworkError, match="CERTIFICATE_VERIFY_FAILED") as error:
            DOORS[door](server.url, tmp_path)
        assert variable in error.value.hint
        assert not isinstance(error.value, http.BusyError), "another attempt fails likewise"
        if variable == "SSL_CERT_DIR":
            subprocess.run(["openssl", "rehash", tmp_path], check=True)
            certificate = tmp_path
        monkeypatch.setenv(variable, str(certificate))
        assert DOORS[door](server.url, tmp_path)


def test_redirect_that_drops_the_encryption_is_refused(tmp_path, monkeypatch):
    certificate = bad_server.self_signed(tmp_path / "server.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    def answer(handler):
        handler.start(302, Location=plain.url + handler.path, Content_Length=0)

    with (
        bad_server.serve(lambda handler: handler.json(REFS)) as plain,
        bad_server.serve(answer, certificate=certificate) as server,
    ):
        for door in (DOORS["hub"], DOORS["web server"], DOORS["index"]):
            with pytest.raises(NetworkError, match="is not encrypted"):
                door(server.url, tmp_path)
        assert not plain.requests


@pytest.fixture
def proxied(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)

    def through(url):
        monkeypatch.setenv("HTTP_PROXY", url)

    return through


def test_proxy_errors_do_not_print_the_password(tmp_path, proxied):
    refuse = {"Proxy_Authenticate": "Basic", "Content_Length": 0}
    with bad_server.serve(lambda handler: handler.start(407, **refuse)) as proxy:
        place = proxy.url.removeprefix("http://")
        proxied(f"http://me:secret@{place}")
        with pytest.raises(RegistryError, match="407") as error:
            client("http://hub.example", tmp_path).refs(REPO)
        assert "HTTP_PROXY" in error.value.hint
    with pytest.raises(NetworkError, match="cannot be reached") as error:
        client("http://hub.example", tmp_path).refs(REPO)
    assert "HTTP_PROXY" in error.value.hint
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_proxy_gets_its_login_and_is_not_used_against_no_proxy(
    tmp_path, proxied, monkeypatch, door
):
    seen = set()

    def answer(handler):
        is_whole = handler.path.startswith("http://")
        seen.add((is_whole, handler.headers.get("Proxy-Authorization")))
        handler.start(404, Content_Length=0)

    with bad_server.serve(answer) as server:
        proxied(server.url.replace("//", "//me:s%3Acrt@"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        for url in ("http://hub.example", server.url):
            with contextlib.suppress(RegistryError):
                door(url, tmp_path)
    assert seen == {(True, http.basic("me", "s:crt")), (False, None)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "banana://127.0.0.1:9"),
        ("HTTP_PROXY", "http://[::"),
        ("SSL_CERT_FILE", "/nonexistent"),
        ("SSL_CERT_FILE", "/etc/passwd"),
    ],
)
def test_invalid_proxy_or_certificate_variable_is_named(
    tmp_path, proxied, monkeypatch, name, value
):
    monkeypatch.setenv(name, value)
    with bad_server.serve(
        lambda h: h.json(REFS), certificate=bad_server.self_signed(tmp_path / "c")
    ) as server:
        address = server.url if name == "SSL_CERT_FILE" else "http://hub.example"
        with pytest.raises(NetworkError) as error:
            client(address, tmp_path).refs(REPO)
    assert name in error.value.hint


@pytest.mark.parametrize("token", ["hf_caf\xe9", "hf_\x01", "hf_a\nb"])
def test_invalid_token_is_not_printed(tmp_path, token):
    with pytest.raises(UsageError) as error:
        client("http://hub.example", tmp_path, token).refs(REPO)
    assert "HF_TOKEN" in error.value.hint
    assert "hf_" not in str(error.value)
