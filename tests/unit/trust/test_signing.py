# SPDX-License-Identifier: Apache-2.0
import base64
import hashlib
import json

import pytest
from support.signatures import Sigstore

from kernforge.errors import IntegrityError, UsageError
from kernforge.system.environment import Environment
from kernforge.trust import signature, signing
from kernforge.trust.policy import KeySigner, fingerprint
from kernforge.trust.signing import Builders, Key


@pytest.fixture(scope="module")
def key():
    return Key()


@pytest.fixture(scope="module")
def stranger():
    return Key()


def signer(key, name="acme"):
    return KeySigner(name=name, key=key.public)


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_signature_covers_each_variant_and_signing_again_changes_nothing(
    key, tmp_path, write_variant
):
    places = [write_variant(tmp_path / name) for name in ("a", "b")]
    written = signing.sign(places, key.sign)
    assert written == [place / "metadata.json.sigstore" for place in places]
    for place, path in zip(places, written, strict=True):
        document = (place / "metadata.json").read_bytes()
        assert signature.verify(document, path.read_bytes(), [signer(key)]).name == "acme"
    before = [files_of(place) for place in places]
    signing.sign(places, key.sign)
    assert [files_of(place) for place in places] == before


def test_key_bundle_has_the_form_that_sigstore_defines(key):
    (bundle,) = key.sign([b"document"])
    read = json.loads(bundle)
    assert read["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert read["verificationMaterial"] == {"publicKey": {"hint": fingerprint(key.public)}}
    assert read["messageSignature"]["messageDigest"] == {
        "algorithm": "SHA2_256",
        "digest": base64.b64encode(hashlib.sha256(b"document").digest()).decode(),
    }


def test_no_variant_is_signed_unless_all_are_whole(key, tmp_path, write_variant):
    whole, changed, bare = (write_variant(tmp_path / name) for name in ("a", "b", "c"))
    (changed / "__init__.py").write_text("x = 2\n")
    document = json.loads((bare / "metadata.json").read_text())
    del document["digest"]
    (bare / "metadata.json").write_text(json.dumps(document))
    for broken, told in ((changed, "__init__"), (bare, "has no digest")):
        with pytest.raises(IntegrityError, match=told):
            signing.sign([whole, broken], key.sign)
        assert not (whole / "metadata.json.sigstore").exists()


def test_public_log_entry_of_an_identity_is_not_replaced(key, tmp_path, write_variant):
    place = write_variant(tmp_path)
    instance = Sigstore()
    with instance.as_public():
        logged = instance.sign((place / "metadata.json").read_bytes())
    (place / "metadata.json.sigstore").write_bytes(logged)
    with pytest.raises(UsageError, match="logged in public"):
        signing.sign([place], key.sign)
    assert (place / "metadata.json.sigstore").read_bytes() == logged


def test_private_key_is_its_owners_alone_and_never_overwritten(tmp_path):
    path = tmp_path / "site.key"
    public, _ = signing.make_key(path, "")
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"BEGIN PRIVATE KEY" in path.read_bytes()
    assert public == tmp_path / "site.key.pub"
    asked = []
    assert signing.open_key(path, lambda: asked.append(1) or "").sign([b"x"])
    assert not asked, "a passphrase was asked for"
    before = files_of(tmp_path)
    for gone in (path, public):
        gone.unlink()
        with pytest.raises(UsageError, match="exists already"):
            signing.make_key(path, "")
        gone.write_bytes(before[gone.name])
    assert files_of(tmp_path) == before


# -- builders of a shared store ----------------------------------------------------------------


def builders(tmp_path, text=None, **variables):
    if text is not None:
        (tmp_path / "builders").write_text(text)
        variables["KERNFORGE_STORE_BUILDERS"] = str(tmp_path / "builders")
    return signing.read_builders(Environment(variables))


def test_only_listed_builders_are_trusted(key, stranger, tmp_path):
    text = f"# the farm\n\n{key.public_text}  # node 1\n"
    read = builders(tmp_path, text)
    assert (read.writes, read.everyone, read.seal(b"m")) == (False, False, b"")
    assert [each.name for each in read.keys] == [f"{tmp_path / 'builders'}:3"]
    (seal,) = key.sign([b"message"])
    read.check(b"message", seal)
    for message, wrong, told in (
        (b"message", b"", "not signed by a builder"),
        (b"message", stranger.sign([b"message"])[0], "not a builder's"),
        (b"other", seal, "of something else"),
        (b"message", b"no bundle", "of something else"),
    ):
        with pytest.raises(IntegrityError, match=told):
            read.check(message, wrong)


def test_builder_with_a_key_seals_what_the_others_accept(tmp_path):
    path = tmp_path / "farm.key"
    _, key = signing.make_key(path, "words")
    variables = {"KERNFORGE_STORE_SIGN_KEY": str(path), "KERNFORGE_SIGN_PASSPHRASE": "words"}
    read = builders(tmp_path, key.public_text, **variables)
    assert read.writes
    read.check(b"m", read.seal(b"m"))


def test_every_writer_is_trusted_only_in_so_many_words(tmp_path):
    everyone = builders(tmp_path, KERNFORGE_STORE_TRUST="all-writers")
    assert everyone.writes
    assert everyone == Builders(everyone=True)
    everyone.check(b"message", b"")
    for variables, told in (
        ({}, "no trusted builders"),
        ({"KERNFORGE_STORE_TRUST": ""}, "no trusted builders"),
        ({"KERNFORGE_STORE_TRUST": "ALL-WRITERS"}, "KERNFORGE_STORE_TRUST is 'ALL-WRITERS'"),
        ({"KERNFORGE_STORE_BUILDERS": str(tmp_path / "absent")}, "cannot be read"),
    ):
        with pytest.raises(UsageError, match=told):
            builders(tmp_path, **variables)


def test_list_of_builders_that_is_not_text_or_no_key_is_refused_with_its_line(key, tmp_path):
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        builders(tmp_path, KERNFORGE_STORE_BUILDERS=str(tmp_path / "latin"))
    with pytest.raises(Exception, match="builders:2: that is not an Ed25519 public key"):
        builders(tmp_path, f"{key.public_text}\nAAAA\n")
