# SPDX-License-Identifier: Apache-2.0
"""``kernels.verify``, answered by kernforge, beside the client's own."""

import argparse
import json

import pytest
from support.signatures import IDENTITY, ISSUER, Sigstore

from kernforge.artifact.metadata import FILE, SIGNATURE
from kernforge.compat import verify
from kernforge.trust import signature

pytest.importorskip("sigstore")
theirs = pytest.importorskip("kernels.verify")


@pytest.fixture(scope="module")
def instance():
    return Sigstore()


@pytest.fixture
def verifier(instance, tmp_path, monkeypatch):
    """The instance's root of trust in the place of the public one, for both."""
    root = tmp_path / "root.json"
    root.write_text(json.dumps(instance.trusted_root()))
    made = signature._verifier(str(root))
    monkeypatch.setattr(signature, "_verifier", lambda _root: made)
    monkeypatch.setattr(theirs.Verifier, "production", classmethod(lambda _cls: made))
    return made


@pytest.fixture
def signed(instance, build):
    path = build() / "torch-cpu"
    (path / SIGNATURE).write_bytes(instance.sign((path / FILE).read_bytes()))
    return path


def accepting():
    policy = pytest.importorskip("sigstore.verify.policy")
    return [policy.Identity(identity=IDENTITY, issuer=ISSUER)]


def both(path, policies):
    """Our result, after comparing it with the client's."""
    ours, wanted = verify.verify_variant(path, policies), theirs.verify_variant(path, policies)
    assert type(ours).__name__ == type(wanted).__name__
    return ours


def change(path, text):
    path.write_text(path.read_text() + text)


def test_a_signed_variant(verifier, signed):
    assert both(signed, accepting()) == verify.VerificationResult.Success()
    assert both(
        signed, [verify.GitHubWorkflowPolicy(repo_id="a/b", signer_uris=["x"]), *accepting()]
    )
    match both(signed, None):
        case verify.VerificationResult.SignatureVerificationFailure(reason=reason):
            assert "refused" in reason
        case other:
            raise AssertionError(other)


def test_a_file_that_was_changed(verifier, signed):
    change(signed / "__init__.py", "\n")
    (signed / "more.py").write_text("")
    match both(signed, accepting()):
        case verify.VerificationResult.DigestVerificationFailure(violations=violations):
            assert sorted(type(v).__name__.strip("_") for v in violations) == [
                "HashMismatch",
                "UnknownFile",
            ]
        case other:
            raise AssertionError(other)


def test_documents_that_are_missing_or_changed(verifier, signed, instance):
    results = verify.VerificationResult
    document, bundle = (signed / FILE).read_bytes(), signed / SIGNATURE
    (signed / FILE).write_bytes(document + b" ")
    assert isinstance(both(signed, accepting()), results.SignatureVerificationFailure)
    plain = json.loads(document)
    del plain["digest"]
    for text, kind in (
        (json.dumps(plain).encode(), results.DigestMissing),
        (b"{}", results.MetadataInvalid),
    ):
        (signed / FILE).write_bytes(text)
        bundle.write_bytes(instance.sign(text))
        assert isinstance(both(signed, accepting()), kind)
    (signed / FILE).unlink()
    assert both(signed, accepting()) == results.MetadataMissing()
    bundle.write_bytes(b"{}")
    (signed / FILE).write_bytes(document)
    assert isinstance(both(signed, accepting()), results.SignatureBundleInvalid)
    bundle.unlink()
    assert both(signed, accepting()) == results.SignatureBundleMissing()


def test_who_may_sign_by_default_is_whom_the_client_names():
    (ours,), (wanted,) = verify.DEFAULT_POLICIES, theirs.DEFAULT_POLICIES
    assert (ours.repo_id, ours.signer_uris) == (wanted.repo_id, wanted.signer_uris)
    with pytest.raises(ValueError, match="At least one signer URI"):
        verify.GitHubWorkflowPolicy(repo_id="a/b", signer_uris=[])


def test_the_command_says_why_and_ends_with_one(verifier, signed, monkeypatch, capsys):
    monkeypatch.setattr(verify.loading, "install_kernel", lambda *_, **__: signed)
    asked = argparse.Namespace(
        repo_id="acme/toy",
        version=1,
        all_variants=False,
        filter_unsigned=False,
        filter_no_digest=False,
    )
    with pytest.raises(SystemExit) as ended:
        verify.verify_signature(asked)
    assert ended.value.code == 1
    assert "❌ torch-cpu: metadata signature verification failed" in capsys.readouterr().out
    (signed / SIGNATURE).unlink()
    asked.filter_unsigned = True
    verify.verify_signature(asked)
    assert capsys.readouterr().out == ""
