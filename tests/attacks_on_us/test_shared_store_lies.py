# SPDX-License-Identifier: Apache-2.0
"""Whoever can write to the shared store, and has no builder's key, puts objects there (A5).

Made up, resealed with their own key, of another key, older, or with links out of the tree: a
reader uses none of them, makes the result itself, and says why.
"""

import hashlib
import uuid
import zlib
from pathlib import Path

import pytest
from support import graphs
from support.attacks import Member, link, tar

from kernforge.builder.results import STORE_KIND
from kernforge.store.local import Store
from kernforge.store.remote import SharedStore
from kernforge.system import files
from kernforge.trust import signing
from kernforge.trust.policy import KeySigner
from kernforge.trust.signing import Builders

KEY, OTHER = "ab" + "0" * 62, "ab" + "1" * 62


def new_builder():
    key = signing.Key()
    return key, KeySigner(name="builder", key=key.public)


@pytest.fixture(scope="module")
def farm():
    """A builder, and a stranger with a key of their own."""
    return new_builder(), new_builder()


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return f"file://{tmp_path}/far" if request.param == "file" else f"memory://{uuid.uuid4().hex}"


def fill(text):
    def write(tree):
        files.write_new(tree / "content", text)

    return write


def put(root, url, key, text, who):
    """Put a tree into the shared store as somebody with these keys."""
    notes = []
    store = Store(root, SharedStore(url, notes.append, who))
    store.tree(STORE_KIND, key, fill(text))
    return notes


def get(root, url, key, who):
    """Ask for a tree; the text, whether it came from elsewhere, and the notes."""
    notes = []
    store = Store(root, SharedStore(url, notes.append, who))
    tree = store.tree(STORE_KIND, key, fill("made here"))
    return (tree / "content").read_text(), key in store.fetched, notes


def path_of(url, key):
    return Path(url.removeprefix("file://")) / "v2" / STORE_KIND / key[:2] / f"{key}.tree"


def test_a_builders_result_is_taken_by_who_can_only_read(tmp_path, url, farm):
    (key, signer), _ = farm
    assert put(tmp_path / "a", url, KEY, "built", Builders(keys=(signer,), key=key)) == []
    reader = Builders(keys=(signer,))
    assert get(tmp_path / "b", url, KEY, reader) == ("built", True, [])
    assert get(tmp_path / "c", url, OTHER, reader)[:2] == ("made here", False)
    # What a reader makes stays with it: it has no key, and needs no right to write.
    assert get(tmp_path / "d", url, OTHER, reader)[:2] == ("made here", False)


@pytest.mark.parametrize(
    ("signs", "words"), [(True, "not a builder's"), (False, "not signed by a builder")]
)
def test_a_stranger_is_not_believed(tmp_path, url, farm, signs, words):
    (_, signer), (evil, its) = farm
    stranger = Builders(keys=(its,), key=evil) if signs else Builders(everyone=True)
    put(tmp_path / "a", url, KEY, "evil", stranger)
    text, fetched, notes = get(tmp_path / "b", url, KEY, Builders(keys=(signer,)))
    assert (text, fetched) == ("made here", False)
    assert words in notes[0]


@pytest.fixture
def signed(tmp_path, farm):
    """Signed objects of two keys in a directory."""
    (key, signer), _ = farm
    url = f"file://{tmp_path}/far"
    for name, text in ((KEY, "one"), (OTHER, "two")):
        put(tmp_path / f"made-{name}", url, name, text, Builders(keys=(signer,), key=key))
    return url, Builders(keys=(signer,))


def test_an_object_of_another_kind_is_noticed(tmp_path, signed):
    url, reader = signed
    path = path_of(url, KEY)
    far = path.parents[2] / "toolchains" / KEY[:2] / path.name
    far.parent.mkdir(parents=True)
    far.write_bytes(path.read_bytes())
    notes = []
    store = Store(tmp_path / "b", SharedStore(url, notes.append, reader))
    tree = store.tree("toolchains", KEY, fill("made here"))
    assert (tree / "content").read_text() == "made here"
    assert "its signature is of something else" in notes[0]


def split(data):
    """The signature, the line with the digest, and the content of a signed object."""
    start = data.index(b"kernforge-tree 1 ")
    end = data.index(b"\n", start) + 1
    return data[:start], data[start:end], data[end:]


EVIL = tar([Member("content")])
EVIL_LINE = f"kernforge-tree 1 {hashlib.sha256(EVIL).hexdigest()}\n".encode()
OTHERS = "its signature is of something else"
SPOILT = {
    "of another key": (OTHERS, lambda data, other: other),
    "resealed": (OTHERS, lambda data, _: split(data)[0] + EVIL_LINE + zlib.compress(EVIL)),
    "another content": ("", lambda data, _: b"".join(split(data)[:2]) + zlib.compress(EVIL)),
    "empty": ("", lambda data, _: b""),
    "no line": ("", lambda data, _: data[:10]),
    "endless signature": ("", lambda data, _: b"kernforge-signed 1 99999999999\n" + data),
    "negative size": ("", lambda data, _: b"kernforge-signed 1 -5\n" + data),
    "old layout": ("", lambda data, _: b"".join(split(data)[1:])),
    "cut signature": ("", lambda data, _: data[:100]),
    "rubbish signature": ("", lambda data, _: data.replace(b'"signature"', b'"sugnature"')),
    "cut content": ("", lambda data, _: data[:-9]),
    "one bit": ("", lambda data, _: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]),
}


@pytest.mark.parametrize(("words", "spoil"), SPOILT.values(), ids=SPOILT)
def test_an_object_that_is_not_the_signed_one_is_made_here(tmp_path, signed, words, spoil):
    url, reader = signed
    path = path_of(url, KEY)
    path.write_bytes(spoil(path.read_bytes(), path_of(url, OTHER).read_bytes()))
    text, fetched, notes = get(tmp_path / "b", url, KEY, reader)
    assert (text, fetched) == ("made here", False)
    assert "is not used" in notes[0]
    assert words in notes[0]


def test_nothing_is_written_before_the_signature_was_checked(tmp_path, signed, monkeypatch):
    url, reader = signed
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    plain = tar([link("up", "../../../../.."), Member("up/victim")])
    line = f"kernforge-tree 1 {hashlib.sha256(plain).hexdigest()}\n".encode()
    path_of(url, KEY).write_bytes(b"kernforge-signed 1 0\n" + line + zlib.compress(plain))
    for who in (reader, Builders(everyone=True)):  # and one who trusts all writers is safe, too
        root = tmp_path / f"b{who.everyone}"
        assert get(root, url, KEY, who)[:2] == ("made here", False)
        assert victim.read_text() == "untouched"


def test_a_builder_replaces_what_a_stranger_put_there(tmp_path, url, farm):
    (key, signer), (evil, its) = farm
    put(tmp_path / "a", url, KEY, "evil", Builders(keys=(its,), key=evil))
    builder = Builders(keys=(signer,), key=key)
    assert get(tmp_path / "b", url, KEY, builder)[:2] == ("made here", False)
    assert get(tmp_path / "c", url, KEY, builder) == ("made here", True, [])


def test_a_build_takes_and_gives_signed_results(tmp_path, farm):
    (key, signer), _ = farm
    url = f"file://{tmp_path}/far"
    builder, reader = Builders(keys=(signer,), key=key), Builders(keys=(signer,))
    action = graphs.action("one", "echo made > out")
    first, _ = graphs.go(tmp_path / "a", action, shared=SharedStore(url, print, builder))
    second, _ = graphs.go(tmp_path / "b", action, shared=SharedStore(url, print, reader))
    assert (first.ran, second.ran, second.shared) == (1, 0, 1)
