# SPDX-License-Identifier: Apache-2.0
"""Registries in buckets: requests of a load, ranges, links, and a user's first mistakes."""

import multiprocessing
import urllib.request
from dataclasses import replace

import pytest
from support import bad_server
from support.registries import LIBRARY

from kernforge.errors import (
    KernforgeError,
    MissingPackageError,
    NetworkError,
    NotPublishedError,
    RegistryError,
)
from kernforge.publish.api import publish
from kernforge.registry.api import open_registry
from kernforge.registry.remote import Part
from kernforge.system import http
from kernforge.system.environment import Environment
from kernforge.system.http import BusyError

REPO, VARIANT = "owner/toy", "torch-cpu"


@pytest.fixture
def published(bucket, buckets, two_variants):
    """The URL of a bucket with two variants of a kernel."""
    publish(two_variants, open_registry(bucket), REPO, card="# toy\n")
    buckets.requests.clear()
    return bucket


@pytest.fixture
def fresh(published, tmp_path, monkeypatch):
    """A function that opens the bucket as another machine; it may have other variables."""
    machines = iter(range(100))

    def open_fresh(url=published, **variables):
        with monkeypatch.context() as patch:
            patch.setenv("KERNFORGE_HOME", str(tmp_path / f"machine{next(machines)}"))
            for name, value in variables.items():
                patch.setenv(name, value) if value else patch.delenv(name)
            return open_registry(url)

    return open_fresh


def part_of(registry, name):
    commit = registry.ref(REPO, "v1")
    path = f"build/{VARIANT}/{name}"
    return commit, Part.around({path: registry.listing(REPO, commit)[path]})


def test_cold_load_of_a_variant_takes_four_requests(fresh, buckets):
    registry = fresh()
    path = registry.fetch(REPO, registry.ref(REPO, "v1"), VARIANT)
    assert (path / "toy.so").read_text() == LIBRARY
    kinds = [request.split("/")[-2] for request in buckets.requests]
    assert sorted(kinds) == ["blobs", "kernels--owner--toy", "listings", "packs"]
    assert {request.split()[0] for request in buckets.requests} == {"GET"}
    registry.fetch(REPO, registry.ref(REPO, "v1"), VARIANT)
    assert len(buckets.requests) == 4


def test_a_download_continues_where_it_ended(fresh):
    registry = fresh()
    commit, part = part_of(registry, "toy.so")
    rest = replace(part, start=part.size - 5)
    assert b"".join(registry.transport.open(REPO, commit, rest)) == LIBRARY[-5:].encode()


def test_a_link_needs_no_credentials(fresh):
    registry = fresh()
    commit, part = part_of(registry, "toy.so")
    link = registry.transport.link(REPO, commit, part)
    with urllib.request.urlopen(link) as response:  # noqa: S310 - http
        assert response.read() == LIBRARY.encode()
    public = fresh(AWS_SKIP_SIGNATURE="true")
    assert public.transport.link(REPO, commit, part) is None
    assert public.transport.repo_ids() == (REPO,)


def test_a_token_of_a_session_goes_to_no_other_host(tmp_path, monkeypatch):
    pytest.importorskip("obstore")
    seen = []

    def other(handler):
        seen.append(str(handler.headers))
        handler.json({"schema": 1, "refs": {}})

    def answer(handler):
        handler.start(307, Location=f"{elsewhere.url}{handler.path.partition('?')[0]}")

    with bad_server.serve(other) as elsewhere, bad_server.serve(answer) as server:
        names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
        variables = {f"AWS_{name}": "our-secret" for name in names}
        variables |= {"AWS_ENDPOINT_URL": server.url, "KERNFORGE_HOME": str(tmp_path)}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        registry = open_registry("s3://bucket/x")
        assert registry.refs(REPO) == {}
    assert len(seen) == 1
    assert "our-secret" not in seen[0]


def test_list_without_end_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("obstore")
    monkeypatch.setattr(http, "ANSWER_S", 0.6)

    def answer(handler):
        number = len(handler.server.requests)
        entry = f"<Key>x/kernels--a--b/{number}</Key><Size>1</Size><ETag>1</ETag>"
        entry += "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        handler.start(Content_Type="application/xml")
        text = f"<NextContinuationToken>{number}</NextContinuationToken>"
        text += f"<IsTruncated>true</IsTruncated><Contents>{entry}</Contents>"
        handler.wfile.write(f"<ListBucketResult>{text}</ListBucketResult>".encode())

    with bad_server.serve(answer) as server:
        for name, value in {"ENDPOINT_URL": server.url, "SKIP_SIGNATURE": "1"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        transport = open_registry("s3://bucket/x").transport
        for ask in (transport.repo_ids, lambda: transport.sizes("a/b")):
            with pytest.raises(NetworkError, match="no complete answer in 1 seconds"):
                ask()


def test_first_mistakes_are_named(fresh, published, buckets):
    def fails(kind, words, hint, *url, **variables):
        with pytest.raises(KernforgeError) as refused:
            fresh(*url, **variables).refs(REPO)
        assert type(refused.value) is kind
        assert words in refused.value.message
        assert hint in refused.value.hint

    elsewhere = published.rpartition("/")[0]
    fails(NotPublishedError, "has no owner/toy", "check the address", elsewhere)
    fails(NotPublishedError, "bucket does not exist", "check the address", "s3://no-such/x")
    fails(RegistryError, "SecretAccessKey", "AWS_SECRET_ACCESS_KEY", AWS_SECRET_ACCESS_KEY="")
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    fails(NetworkError, "cannot be reached: Connection refused", "AWS_ENDPOINT_URL", **nowhere)
    buckets.before = lambda _number, _request: 403
    fails(RegistryError, "HTTP 403", "may get, list and put")
    buckets.before = lambda _number, _request: 301
    fails(RegistryError, "HTTP 301", "AWS_REGION")
    buckets.before = lambda _number, _request: 503
    fails(BusyError, "HTTP 503", "try again later")


@pytest.mark.parametrize("url", ["s3://user:secret@bucket/x", "gs://bu cket", "az:///x"])
def test_invalid_addresses_are_refused(url):
    with pytest.raises(RegistryError, match="not the address of a bucket"):
        open_registry(url, Environment({}))


@pytest.mark.parametrize(
    ("url", "variables"),
    [
        ("gs://bucket/some/path", {"GOOGLE_SKIP_SIGNATURE": "true"}),
        ("az://container/path", {"AZURE_STORAGE_ACCOUNT_NAME": "us", "AZURE_SKIP_SIGNATURE": "1"}),
    ],
)
def test_other_clouds_are_configured_by_their_variables(url, variables, monkeypatch):
    pytest.importorskip("obstore")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    registry = open_registry(url)
    assert (registry.url, registry.transport.store.prefix) == (url, url.split("/", 3)[3])


def test_an_unknown_profile_is_named(fresh):
    pytest.importorskip("boto3")
    with pytest.raises(RegistryError, match="nobody") as refused:
        fresh(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_PROFILE="nobody")
    assert "AWS_PROFILE" in refused.value.hint


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingPackageError, match="needs obstore") as refused:
        open_registry("s3://somewhere/else", Environment({}))
    assert "kernforge[objects]" in refused.value.hint


def test_a_forked_process_is_refused(fresh):
    registry = fresh()
    registry.refs(REPO)

    def ask(answers):
        try:
            registry.transport.refs(REPO)
        except RegistryError as error:
            answers.put(error.message)

    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=ask, args=(answers,))
    process.start()
    assert "cannot be used in a forked process" in answers.get(timeout=60)
    process.join()
