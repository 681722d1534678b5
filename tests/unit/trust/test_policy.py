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
    KeySigner,
    Rule,
    Subject,
    claims_match,
    fingerprint,
    matching_rules,
    public_key,
    read,
)

HUB = "https://hub.example"
BUILD = "ab" * 32
KEY = base64.b64encode(ED25519_DER + bytes(range(32))).decode()
SIGNER = f'[signer.acme]\npublic-key = "{KEY}"\n'


def policy(text):
    return read(text.encode(), "/etc/p.toml")


def admitted(text, repo_id, registry=HUB):
    """What the rules of a text, in its only policy, demand of a kernel."""
    subject = Subject(repo_id=repo_id, registry=registry)
    return [rule.admit.value for rule in matching_rules([policy(text)], subject, BUILD)]


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
        ('registry = "https://hub.example"', "acme/toy", HUB + "/", True),
        ('registry = "https://hub.example"', "acme/toy", "https://HUB.example", True),
        ('registry = "https://*.example"', "acme/toy", HUB, True),
        ('registry = "https://*"', "acme/toy", "https://hub.example/deep", False),
        ('registry = "https://**"', "acme/toy", "https://hub.example/deep", True),
        ('registry = "file://**"', "acme/toy", HUB, False),
        ("", "acme/toy", HUB, True),
        ('registry = "**/b"', "acme/toy", "https://x/a/b", True),
        ('registry = "https://x/a*"', "acme/toy", "https://x/ab@c", False),
        ('registry = "https://x/a*"', "acme/toy", "https://x/a", True),
        ('registry = "https://x/a/*/c/**"', "acme/toy", "https://x/a/b/c/d/e", True),
        ('registry = "https://x/a.c"', "acme/toy", "https://x/abc", False),
        (f'document = "{BUILD}"', "acme/toy", HUB, True),
        (f'document = ["{"cd" * 32}", "{BUILD}"]', None, "file:///srv", True),
        (f'document = "{"cd" * 32}"', "acme/toy", HUB, False),
        (f'document = "{BUILD}"\nrepo = "other/*"', "acme/toy", HUB, False),
    ],
)
def test_rule_matches_its_patterns(rule, repo_id, registry, speaks):
    found = admitted(f'[[rule]]\n{rule}\nadmit = "never"', repo_id, registry)
    assert ("never" in found) == speaks


def test_case_does_not_reach_a_rule_without_demands():
    text = '[[rule]]\nrepo = "acme/*"\nadmit = "always"'
    assert admitted(text, "acme/toy") == ["always"]
    assert admitted(text, "Acme/toy") == ["asked"]


def test_first_matching_rule_of_a_file_applies():
    text = (
        '[[rule]]\nrepo = "acme/toy"\nadmit = "always"\n'
        '[[rule]]\nrepo = "acme/*"\nadmit = "never"\n'
    )
    assert admitted(text, "acme/toy") == ["always"]
    assert admitted(text, "acme/other") == ["never"]


def test_all_policies_apply_else_the_built_in_one():
    site = policy(f'{SIGNER}[[rule]]\nrepo = "acme/*"\nadmit = "signed"\nsigners = "acme"')
    user = policy('[[rule]]\nadmit = "always"')

    def found(*policies):
        rules = matching_rules(policies, Subject(repo_id="acme/toy", registry=HUB), BUILD)
        return [rule.admit for rule in rules]

    assert found(site, user) == [Admit.SIGNED, Admit.ALWAYS]
    assert found(site) == [Admit.SIGNED]
    assert found() == [Admit.ASKED]
    directory = Subject(repo_id=None, registry="file:///here")
    assert [rule.admit for rule in matching_rules([], directory, BUILD)] == [Admit.ALWAYS]


def test_url_of_several_registries_is_refused():
    for registry in ("file:///srv, then https://hub.example", "file:///a b", "somewhere", ""):
        with pytest.raises(TrustError, match="not the URL of one registry"):
            Subject(repo_id="acme/toy", registry=registry)


def test_every_kernel_matches_a_built_in_rule():
    for registry in (HUB, "oci://registry.example/kernels", "file:///srv", "s3://bucket/x"):
        for repo_id in ("a/b", None):
            subject = Subject(repo_id=repo_id, registry=registry)
            assert matching_rules([], subject, BUILD), registry
    assert BUILT_IN.rules[-1].admit is Admit.ASKED


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[rules]]\nadmit = "always"', "unknown key 'rules'"),
        ('[[rule]]\nadmits = "always"', "unknown key 'admits'"),
        ('[[rule]]\nadmit = "yes"', "admit is 'yes'"),
        ('[[rule]]\nadmit = "never"\nrepo = []', "repo is []"),
        ('[[rule]]\nadmit = "signed"', "0 signers"),
        ('[[rule]]\nadmit = "signed"\nsigners = "nobody"', "no signer 'nobody'"),
        (f'{SIGNER}[[rule]]\nadmit = "always"\nsigners = "acme"', "1 signers"),
        ('[[rule]]\nadmit = "always"\npublishers = "hub"', "publishers is 'hub'"),
        ('[[rule]]\nadmit = "never"\nreason = 1', "reason is 1"),
        ('rule = "x"', "rule is not a list"),
        ('[signer.a]\npublic-key = "AAAA"', "not an Ed25519 public key"),
        (f'[signer.a]\npublic-key = "{KEY}"\nissuer = "x"', "unknown key 'issuer'"),
        ('[signer.a]\nissuer = "x"\nidentity = "**"', "identity matches nothing"),
        ('[signer.a]\nidentity = "me@example.org"', "it has no issuer"),
        (f'[signer."a b"]\npublic-key = "{KEY}"', "is not a name"),
        ('[[rule]]\nadmit = "never"\ndocument = "abc"', "not a SHA-256"),
        (f'[[revoked]]\npublic-key = "{KEY}"', "unknown key 'revoked'"),
    ],
)
def test_malformed_policy_is_refused(text, told):
    with pytest.raises(TrustError, match=r"p\.toml") as caught:
        policy(text)
    assert told in str(caught.value)


WORKFLOWS = "https://git.example/acme/k/.github/workflows"
MAIN = f"{WORKFLOWS}/build.yaml@refs/heads/main"


@pytest.mark.parametrize(
    ("pattern", "identity", "fits"),
    [
        (MAIN, MAIN, True),
        (f"{WORKFLOWS}/*@refs/heads/main", MAIN, True),
        ("https://git.example/acme/**", MAIN, True),
        ("https://git.example/acme/*", MAIN, False),
        (MAIN.removesuffix("n"), MAIN, False),
        (MAIN.partition("@")[0], MAIN, False),
        (MAIN.replace("https", "HTTPS"), MAIN, False),
        # a branch named like another ref
        (
            f"{WORKFLOWS}/*@refs/heads/main",
            f"{WORKFLOWS}/b.yaml@refs/heads/x@refs/heads/main",
            False,
        ),
        ("*@example.org", "me@example.org", True),
        ("*@example.org", "me@evil@example.org", False),
    ],
)
def test_identity_matches_in_full(pattern, identity, fits):
    signer = IdentitySigner(name="s", issuer="i", identities=(pattern,), source_repository="r")
    right = {"issuer": "i", "identities": (identity,), "source_repository": "r"}
    assert claims_match(signer, Claims(**right)) is fits
    for wrong in ({"issuer": "other"}, {"issuer": "i2"}, {"source_repository": "other"}):
        assert not claims_match(signer, Claims(**right | wrong))


def test_every_word_of_a_policy_is_kept():
    text = (
        '[signer.ci]\nissuer = "https://i.example"\nidentity = ["a@x", "b@x"]\n'
        f'source-repository = "https://git.example/k"\n{SIGNER}'
        '[[rule]]\nrepo = "acme/*"\nadmit = "signed"\nsigners = ["ci", "acme"]\nreason = "r"\n'
        '[[rule]]\nadmit = "asked"\npublishers = "hub"\n'
    )
    ci = IdentitySigner(
        name="ci",
        issuer="https://i.example",
        identities=("a@x", "b@x"),
        source_repository="https://git.example/k",
    )
    acme = KeySigner(name="acme", key=bytes(range(32)))
    first, second = policy(text).rules
    assert first == Rule(
        admit=Admit.SIGNED,
        repos=("acme/*",),
        signers=(ci, acme),
        reason="r",
        where="/etc/p.toml: rule 1",
    )
    assert second == Rule(admit=Admit.ASKED, publishers=True, where="/etc/p.toml: rule 2")


def test_community_signer_is_that_of_the_hubs_client():
    from kernels.verify import DEFAULT_POLICIES  # noqa: PLC0415 - it needs a second

    (theirs,) = DEFAULT_POLICIES
    assert COMMUNITY.source_repository == f"https://github.com/{theirs.repo_id}"
    assert sorted(COMMUNITY.identities) == sorted(theirs.signer_uris)


def test_public_key_is_pem_or_one_line():
    pem = f"-----BEGIN PUBLIC KEY-----\n{KEY}\n-----END PUBLIC KEY-----\n"
    assert public_key(pem, "k") == public_key(KEY, "k") == bytes(range(32))
    assert len(base64.b64decode(fingerprint(bytes(32)))) == 32
    for wrong in ("", "no base64!", base64.b64encode(bytes(32)).decode(), KEY + "AAAA"):
        with pytest.raises(TrustError, match="Ed25519"):
            public_key(wrong, "k")
