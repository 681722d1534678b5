# SPDX-License-Identifier: Apache-2.0
import base64
import json
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives import serialization
from kernels.verify import VerificationResult, verify_variant
from support.signatures import IDENTITY, ISSUER, SOURCE, Sigstore, token

from kernforge.errors import IntegrityError, TrustError, UsageError
from kernforge.trust import signature, signing
from kernforge.trust.policy import IdentitySigner, KeySigner, public_key
from kernforge.trust.signing import Key

DOCUMENT = b'{"name": "toy"}'


@pytest.fixture(scope="module")
def key():
    made = Key()
    return made, KeySigner(name="acme", key=made.public)


@pytest.fixture(scope="module")
def stranger():
    made = Key()
    return made, KeySigner(name="stranger", key=made.public)


def test_key_signatures_are_deterministic(key, stranger):
    private, signer = key
    (bundle,) = private.sign([DOCUMENT])
    assert signature.verify(DOCUMENT, bundle, [stranger[1], signer]) is signer
    assert private.sign([DOCUMENT]) == [bundle]
    assert signature.is_key_bundle(bundle)


def test_other_bytes_or_keys_are_refused(key, stranger):
    private, signer = key
    bundle = json.loads(private.sign([DOCUMENT])[0])
    with pytest.raises(IntegrityError, match="does not fit its bytes"):
        signature.verify(DOCUMENT + b" ", json.dumps(bundle).encode(), [signer])
    with pytest.raises(TrustError, match="not one of stranger"):
        signature.verify(DOCUMENT, json.dumps(bundle).encode(), [stranger[1]])
    forged = json.loads(stranger[0].sign([DOCUMENT])[0])
    forged["verificationMaterial"] = bundle["verificationMaterial"]
    loose = {"signature": "\n" + bundle["messageSignature"]["signature"]}
    for made in (
        forged["messageSignature"],
        {"signature": "no"},
        {"signature": 1},
        {},
        None,
        loose,
    ):
        with pytest.raises(IntegrityError, match="does not fit its bytes"):
            signature.verify(
                DOCUMENT, json.dumps({**bundle, "messageSignature": made}).encode(), [signer]
            )


@pytest.mark.parametrize(
    "bundle",
    [b"", b"\xff", b"[]", b"{}", b'{"verificationMaterial": 1}', b"[" * 100_000],
    ids=["empty", "binary", "list", "no-material", "number", "deep"],
)
def test_malformed_bundle_is_refused(key, bundle):
    with pytest.raises(IntegrityError, match="not a Sigstore bundle"):
        signature.verify(DOCUMENT, bundle, [key[1]])


def test_bundle_of_over_a_megabyte_is_not_parsed(key):
    (bundle,) = key[0].sign([DOCUMENT])
    fits = bundle + b" " * ((1 << 20) - len(bundle))
    assert signature.verify(DOCUMENT, fits, [key[1]])
    with pytest.raises(IntegrityError, match="it has 1048577 bytes"):
        signature.verify(DOCUMENT, fits + b" ", [key[1]])


def test_unusable_key_file_is_an_error(tmp_path):
    path = tmp_path / "platform.key"
    public, made = signing.make_key(path, "secret words")
    with pytest.raises(UsageError, match=r"platform\.key\.pub cannot be read") as refused:
        signing.open_key(public, lambda: "")
    assert "the file without .pub" in refused.value.hint
    for wrong in ("", "other words"):
        with pytest.raises(UsageError, match=r"platform\.key cannot be read"):
            signing.open_key(path, lambda: wrong)  # noqa: B023 - called at once
    opened = signing.open_key(path, lambda: "secret words")
    assert (opened.public_text, public_key(public.read_text(), "k")) == (
        made.public_text,
        made.public,
    )
    assert opened.sign([DOCUMENT])


def test_openssl_verifies_a_key_signature(key, tmp_path):
    made = json.loads(key[0].sign([DOCUMENT])[0])["messageSignature"]["signature"]
    public = (
        key[0]
        .private.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    contents = {"key": public, "document": DOCUMENT, "signature": base64.b64decode(made)}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    files = ["-pubin", "-inkey", "key", "-rawin", "-in", "document", "-sigfile", "signature"]
    subprocess.run(["openssl", "pkeyutl", "-verify", *files], cwd=tmp_path, check=True)


# -- identities --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def instance():
    made = Sigstore()
    with made.as_public():
        yield made


def builder(**fields):
    told = {"issuer": ISSUER, "identities": (IDENTITY,), "source_repository": SOURCE} | fields
    return IdentitySigner(name="builder", **told)


def test_signing_identity_is_found(instance, key):
    other = builder(identities=("me@example.org",))
    signer = builder()
    bundle = instance.sign(DOCUMENT)
    assert signature.verify(DOCUMENT, bundle, [key[1], other, signer]) is signer
    assert not signature.is_key_bundle(bundle)


@pytest.mark.parametrize(
    "claims",
    [
        {"issuer": "https://other.example"},
        {"identity": IDENTITY.replace("main", "feature")},
        {"identity": "me@example.org"},
        {"source": "https://git.example/acme/fork"},
        {"source": None},
    ],
    ids=["issuer", "ref", "person", "fork", "no-source"],
)
def test_other_identity_is_refused_by_name(instance, claims):
    bundle = instance.sign(DOCUMENT, **claims)
    with pytest.raises(TrustError, match="not one of builder") as caught:
        signature.verify(DOCUMENT, bundle, [builder()])
    assert claims.get("identity", IDENTITY) in str(caught.value)


def tampered(bundle, *path, value):
    document = json.loads(bundle)
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(document).encode()


ENTRY = ("verificationMaterial", "tlogEntries", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("messageSignature", "signature"), "MEUCIQ=="),
        (("messageSignature", "messageDigest", "digest"), base64.b64encode(bytes(32)).decode()),
        (("verificationMaterial", "tlogEntries"), []),
        ((*ENTRY, "integratedTime"), "1700000000"),
        ((*ENTRY, "inclusionPromise", "signedEntryTimestamp"), "MEUCIQ=="),
        ((*ENTRY, "inclusionProof", "rootHash"), base64.b64encode(bytes(32)).decode()),
        ((*ENTRY, "inclusionProof", "checkpoint", "envelope"), "log\n1\nAAAA\n\nx"),
        ((*ENTRY, "canonicalizedBody"), base64.b64encode(b"{}").decode()),
        (("verificationMaterial", "certificate", "rawBytes"), "AAAA"),
        (("mediaType",), "application/json"),
    ],
)
def test_tampered_bundle_is_refused(instance, path, value):
    bundle = tampered(instance.sign(DOCUMENT), *path, value=value)
    with pytest.raises(IntegrityError, match="is not valid"):
        signature.verify(DOCUMENT, bundle, [builder()])


def test_bundle_of_other_bytes_or_instance_is_refused(instance):
    with pytest.raises(IntegrityError, match="is not valid"):
        signature.verify(DOCUMENT + b" ", instance.sign(DOCUMENT), [builder()])
    with pytest.raises(IntegrityError, match="is not valid"):
        signature.verify(DOCUMENT, Sigstore().sign(DOCUMENT), [builder()])


def test_keys_and_identities_are_not_exchangeable(instance, key):
    with pytest.raises(TrustError, match="Sigstore identity"):
        signature.verify(DOCUMENT, instance.sign(DOCUMENT), [key[1]])
    (made,) = key[0].sign([DOCUMENT])
    with pytest.raises(TrustError, match="not one of builder"):
        signature.verify(DOCUMENT, made, [builder()])


def test_signing_needs_an_identity_and_an_instance(instance, monkeypatch):
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="cannot be used"):
        signature.sign_with_identity([DOCUMENT], "no token")
    with (
        instance.as_public("http://127.0.0.1:9"),
        pytest.raises(TrustError, match="Sigstore did not sign"),
    ):
        signature.sign_with_identity([DOCUMENT], token("me@example.org"))


def test_hubs_client_calls_a_key_bundle_invalid(key, tmp_path, write_variant):
    directory = write_variant(tmp_path)
    document = (directory / "metadata.json").read_bytes()
    (bundle,) = key[0].sign([document])
    (directory / "metadata.json.sigstore").write_bytes(bundle)
    assert isinstance(verify_variant(directory), VerificationResult.SignatureBundleInvalid)


def test_import_loads_no_cryptography():
    code = (
        "import sys, kernforge.loader.api, kernforge.trust.signature; "
        "sys.exit(bool({'cryptography', 'sigstore', 'tomllib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
