# SPDX-License-Identifier: Apache-2.0
"""Loading under a trust policy: what is refused is not read, and not run."""

import shutil

import pytest
from support import policies
from support.policies import NEVER, REPO, SIGNED, Remote, user
from support.signatures import IDENTITY, ISSUER, Sigstore
from support.variants import replace_linked

from kernforge.artifact.metadata import SIGNATURE
from kernforge.errors import IntegrityError, TrustError
from kernforge.loader import api as loader
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.trust import signing


@pytest.fixture(autouse=True)
def place(machine, monkeypatch, tmp_path):
    """A machine with torch for the CPU and without policies."""
    policies.without_policies(monkeypatch, tmp_path)


@pytest.fixture
def key(tmp_path):
    made = signing.Key()
    return made, made.public_text


@pytest.fixture
def built(tmp_path, write_variant, request):
    """A built variant with an id of this test's own."""
    unique = f"{abs(hash(request.node.nodeid)) % 16**7:07x}"
    return write_variant(tmp_path / "build", unique=unique)


def remote(tmp_path, built) -> Remote:
    publish(built.parent, DirectoryRegistry(tmp_path / "registry"), REPO)
    return Remote(tmp_path / "registry", publishers=None)


def test_refused_kernel_is_not_parsed(tmp_path, built):
    registry = remote(tmp_path, built)
    for path in (tmp_path / "registry").rglob("metadata.json"):
        replace_linked(path, b"not JSON")
    with pytest.raises(TrustError):
        loader.get_kernel(REPO, version=1, registry=registry)
    with pytest.raises(IntegrityError, match="not JSON"):
        loader.get_kernel(REPO, version=1, registry=registry, trust_remote_code=True)
    with pytest.raises(TrustError):
        loader.has_kernel(REPO, version=1, registry=registry)


def test_tampered_signed_document_is_not_parsed(tmp_path, built, key):
    signing.sign([built], key[0].sign)
    user(SIGNED.replace('repo = "acme/*"', "").format(key[1]))
    (built / "metadata.json").write_bytes(b"not JSON, and whoever parses it says so")
    with pytest.raises(IntegrityError, match="does not fit its bytes"):
        loader.get_local_kernel(built)


def test_signature_without_a_digest_is_refused(tmp_path, write_variant, key):
    directory = write_variant(tmp_path / "build", unique="eeeeeee", digest=False)
    document = (directory / "metadata.json").read_bytes()
    (directory / SIGNATURE).write_bytes(key[0].sign([document])[0])
    user(SIGNED.replace('repo = "acme/*"', "").format(key[1]))
    with pytest.raises(IntegrityError, match="has no digest"):
        loader.get_local_kernel(directory)


def test_policy_applies_to_dependencies(tmp_path, built, write_variant):
    registry = remote(tmp_path, built)
    user_of = write_variant(tmp_path / "user", unique="ddddddd", name="user", depends={REPO: 1})
    publish(user_of.parent, DirectoryRegistry(tmp_path / "registry"), "acme/user")
    with pytest.raises(TrustError, match="acme/toy from"):
        loader.get_kernel(
            "acme/user", version=1, registry=registry, trust_remote_code=["acme/user"]
        )


def test_signing_identity_must_match_the_policy(built):
    instance = Sigstore()
    document = (built / "metadata.json").read_bytes()
    (built / SIGNATURE).write_bytes(instance.sign(document))
    rule = '[[rule]]\nadmit = "signed"\nsigners = "builder"\n'
    signer = f'[signer.builder]\nissuer = "{ISSUER}"\n'
    user(f'{signer}identity = "{IDENTITY.replace("build.yaml", "*")}"\n{rule}')
    with instance.as_public():
        assert loader.get_local_kernel(built).ANSWER == 42
        user(f'{signer}identity = "{IDENTITY.replace("main", "release/*")}"\n{rule}')
        with pytest.raises(TrustError, match="which is not one of builder"):
            loader.get_local_kernel(built)


def test_link_in_a_trusted_directory_is_refused(tmp_path, built):
    elsewhere = shutil.copytree(built, tmp_path / "elsewhere" / built.name)
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    (trusted / built.name).symlink_to(elsewhere)
    user(f'[[rule]]\nregistry = "{trusted.as_uri()}/**"\nadmit = "always"\n{NEVER}')
    with pytest.raises(TrustError, match="elsewhere"):
        loader.get_local_kernel(trusted / built.name)
