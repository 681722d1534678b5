# SPDX-License-Identifier: Apache-2.0
import base64

import pytest

from kernforge.errors import TrustError
from kernforge.trust.policy import (
    BUILT_IN,
    COMMUNITY,
    ED25519_DER,
    Admit,
    Claims,
    IdentitySigner,
    Subject,
    _matches,
    claims_match,
    fingerprint,
    is_revoked,
    matching_rules,
    public_key,
    read,
)

HUB = "https://hub.example"
KEY = base64.b64encode(ED25519_DER + bytes(range(32))).decode()
SIGNER = f'[signer.acme]\npublic-key = "{KEY}"\n'


def policy(text):
    return read(text.encode(), "/etc/p.toml")


def admitted(text, repo_id, registry=HUB):
    """What the rules of a text, in its only policy, demand of a kernel."""
    subject = Subject(repo_id=repo_id, registry=registry)
    return [rule.admit.value for rule in matching_rules([policy(text)], subject)]


@pytest.mark.parametrize(
    ("rule", "repo_id", "registry", "speaks"),
    [
        ('repo = "acme/*"', "acme/toy", HUB, True),
        ('repo = "acme/*"', "acmes/toy", HUB, False),
        ('repo = "acme/*"', "ACME/toy", HUB, True),
        ('repo = "acme/t.y"', "acme/toy", HUB, False),
        ('repo = ["a/b", "acme/toy"]', "acme/toy", HUB, True),
        ('repo = "*"', "acme/toy", HUB, True),
        ('repo = "*"', None, "file:///srv/kernels", True),
        ('repo = "**"', None, "file:///srv/kernels", False),
        ('registry = "https://hub.example/"', "acme/toy", HUB, True),
        ('registry = "https://*.example"', "acme/toy", HUB, True),
        ('registry = "https://*"', "acme/toy", "https://hub.example/deep", False),
        ('registry = "https://**"', "acme/toy", "https://hub.example/deep", True),
        ('registry = "file://**"', "acme/toy", HUB, False),
        ("", "acme/toy", HUB, True),
    ],
)
def test_a_rule_speaks_of_what_it_names(rule, repo_id, registry, speaks):
    found = admitted(f'[[rule]]\n{rule}\nadmit = "never"', repo_id, registry)
    assert ("never" in found) == speaks


def test_what_demands_nothing_is_not_reached_by_another_case():
    text = '[[rule]]\nrepo = "acme/*"\nadmit = "always"'
    assert admitted(text, "acme/toy") == ["always"]
    assert admitted(text, "Acme/toy") == ["asked"]


def test_the_first_rule_that_names_a_kernel_speaks_for_its_file():
    text = (
        '[[rule]]\nrepo = "acme/toy"\nadmit = "always"\n'
        '[[rule]]\nrepo = "acme/*"\nadmit = "never"\n'
    )
    assert admitted(text, "acme/toy") == ["always"]
    assert admitted(text, "acme/other") == ["never"]


def test_every_file_that_speaks_must_be_satisfied_and_silence_leaves_the_built_in_rule():
    site = policy(f'{SIGNER}[[rule]]\nrepo = "acme/*"\nadmit = "signed"\nsigners = "acme"')
    user = policy('[[rule]]\nadmit = "always"')

    def found(*policies):
        rules = matching_rules(policies, Subject(repo_id="acme/toy", registry=HUB))
        return [rule.admit for rule in rules]

    assert found(site, user) == [Admit.SIGNED, Admit.ALWAYS]
    assert found(site) == [Admit.SIGNED]
    assert found() == [Admit.ASKED]
    directory = Subject(repo_id=None, registry="file:///here")
    assert [rule.admit for rule in matching_rules([], directory)] == [Admit.ALWAYS]


def test_rules_for_one_registry_do_not_speak_for_another_that_is_named_with_it():
    for registry in ("file:///srv, then https://hub.example", "file:///a b", "somewhere", ""):
        with pytest.raises(TrustError, match="not the URL of one registry"):
            Subject(repo_id="acme/toy", registry=registry)


def test_every_kernel_meets_a_built_in_rule():
    for registry in (HUB, "oci://registry.example/kernels", "file:///srv", "s3://bucket/x"):
        for repo_id in ("a/b", None):
            assert matching_rules([], Subject(repo_id=repo_id, registry=registry)), registry
    assert BUILT_IN.rules[-1].admit is Admit.ASKED


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[rules]]\nadmit = "always"', "did you mean 'rule'"),
        ('[[rule]]\nadmits = "always"', "did you mean 'admit'"),
        ('[[rule]]\nadmit = "yes"', "admit is 'yes'"),
        ('[[rule]]\nrepo = "a/b"', "admit is None"),
        ('[[rule]]\nadmit = "never"\nrepo = []', "repo is []"),
        ('[[rule]]\nadmit = "never"\nrepo = 1', "repo is 1"),
        ('[[rule]]\nadmit = "signed"', "0 signers"),
        ('[[rule]]\nadmit = "signed"\nsigners = "nobody"', "no signer 'nobody'"),
        (f'{SIGNER}[[rule]]\nadmit = "always"\nsigners = "acme"', "1 signers"),
        ('[[rule]]\nadmit = "always"\npublishers = "hub"', "publishers is 'hub'"),
        ('[[rule]]\nadmit = "asked"\npublishers = "all"', "publishers is 'all'"),
        ('[[rule]]\nadmit = "never"\nreason = 1', "reason is 1"),
        ('rule = "x"', "rule is not a list"),
        ("signer = 1", "signer is not a table"),
        ('[signer.a]\npublic-key = "AAAA"', "not an Ed25519 public key"),
        (f'[signer.a]\npublic-key = "{KEY}"\nissuer = "x"', "unknown key 'issuer'"),
        ('[signer.a]\nissuer = "x"', "identity matches nothing"),
        ('[signer.a]\nissuer = "x"\nidentity = "**"', "identity matches nothing"),
        ('[signer.a]\nidentity = "me@example.org"', "it has no issuer"),
        (f'[signer."a b"]\npublic-key = "{KEY}"', "is not a name"),
    ],
)
def test_a_policy_with_a_mistake_is_refused_whole(text, told):
    with pytest.raises(TrustError, match=r"p\.toml") as caught:
        policy(text)
    assert told in str(caught.value)


CLAIMS = Claims(
    issuer="https://issuer.example",
    identities=("https://git.example/acme/k/.github/workflows/build.yaml@refs/heads/main",),
    source_repository="https://git.example/acme/k",
)


@pytest.mark.parametrize(
    ("identity", "fits"),
    [
        (CLAIMS.identities[0], True),
        ("https://git.example/acme/k/.github/workflows/*@refs/heads/main", True),
        ("https://git.example/acme/**", True),
        ("https://git.example/acme/*", False),
        ("https://git.example/acme/k/.github/workflows/build.yaml@refs/heads/mai", False),
        ("https://git.example/acme/k/.github/workflows/build.yaml", False),
        ("HTTPS://git.example/acme/k/.github/workflows/build.yaml@refs/heads/main", False),
    ],
)
def test_an_identity_is_matched_whole(identity, fits):
    signer = IdentitySigner(name="s", issuer=CLAIMS.issuer, identities=(identity,))
    assert claims_match(signer, CLAIMS) == fits


def test_a_branch_that_is_named_like_another_ref_does_not_sign_as_it():
    workflows = "https://git.example/acme/k/.github/workflows"
    signer = IdentitySigner(name="s", issuer="i", identities=(f"{workflows}/*@refs/heads/main",))
    forged = Claims(issuer="i", identities=(f"{workflows}/b.yaml@refs/heads/x@refs/heads/main",))
    assert not claims_match(signer, forged)


def test_an_address_in_an_address_is_not_of_its_domain():
    signer = IdentitySigner(name="s", issuer="i", identities=("*@example.org",))
    assert claims_match(signer, Claims(issuer="i", identities=("me@example.org",)))
    assert not claims_match(signer, Claims(issuer="i", identities=("me@evil@example.org",)))


def test_issuer_and_source_repository_must_be_those_of_the_signer():
    fields = {"name": "s", "identities": CLAIMS.identities}
    good = {"issuer": CLAIMS.issuer, "source_repository": CLAIMS.source_repository}
    assert claims_match(IdentitySigner(**fields, **good), CLAIMS)
    for wrong in ({"issuer": "https://other.example"}, {"source_repository": "https://other"}):
        assert not claims_match(IdentitySigner(**fields, **{**good, **wrong}), CLAIMS)


def test_the_hubs_community_is_who_its_own_client_says():
    from kernels.verify import DEFAULT_POLICIES  # noqa: PLC0415 - it needs a second

    (theirs,) = DEFAULT_POLICIES
    assert COMMUNITY.source_repository == f"https://github.com/{theirs.repo_id}"
    assert sorted(COMMUNITY.identities) == sorted(theirs.signer_uris)


def test_a_public_key_is_read_as_pem_and_as_one_line():
    pem = f"-----BEGIN PUBLIC KEY-----\n{KEY}\n-----END PUBLIC KEY-----\n"
    assert public_key(pem, "k") == public_key(KEY, "k") == bytes(range(32))
    assert len(base64.b64decode(fingerprint(bytes(32)))) == 32
    for wrong in ("", "no base64!", base64.b64encode(bytes(32)).decode(), KEY + "AAAA"):
        with pytest.raises(TrustError, match="Ed25519"):
            public_key(wrong, "k")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[revoked]]\nreason = 'x'", "does not say what is revoked"),
        (f'[[revoked]]\npublic-key = "{KEY}"\nidentity = "x"', "does not say what is revoked"),
        ('[[revoked]]\ndocument = "abc"', "not a SHA-256"),
        ('[[revoked]]\npublic-key = "abc"', "not an Ed25519 public key"),
        ("revoked = 3", "revoked is not a list"),
        ('[[revoked]]\nkey = "abc"', "unknown key 'key'"),
    ],
)
def test_a_wrong_revocation_is_an_error(text, message):
    with pytest.raises(TrustError, match=message):
        policy(text)


def test_an_identity_is_revoked_by_a_pattern():
    entry = policy('[[revoked]]\nidentity = "https://ci.example/acme/*@main"').revoked[0]
    claims = Claims(issuer=HUB, identities=("https://ci.example/acme/build@main",))
    assert is_revoked(claims, [entry]) is entry
    other = Claims(issuer=HUB, identities=("https://ci.example/other/build@main",))
    assert is_revoked(other, [entry]) is None


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        *(("a*c", "abbc", True), ("a*c", "ab/c", False), ("a*c", "ab@c", False)),
        *(("a**c", "ab/@c", True), ("**", "", True), ("*", "a/b", True), ("a*", "a", True)),
        *(("*/b", "a/b", True), ("*/b", "x/a/b", False), ("**/b", "x/a/b", True)),
        *(("a/*/c/**", "a/b/c/d/e", True), ("***", "a/b", True), ("a.c", "abc", False)),
    ],
)
def test_stars_match_what_they_say(pattern, text, fits):
    assert _matches(pattern, text) is fits
    assert _matches(pattern.upper(), text, ignore_case=True) is fits
