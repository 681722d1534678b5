# SPDX-License-Identifier: Apache-2.0
import hashlib
import logging
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import policies
from support.policies import HUB, NEVER, REPO, Remote, user, write

from kernforge.artifact.metadata import Metadata
from kernforge.errors import RequestError, TrustError
from kernforge.system.environment import Environment
from kernforge.trust import admission, policy
from kernforge.trust.policy import Subject
from kernforge.trust.signing import Key

HERE = Subject(repo_id=REPO, registry=HUB)
DOCUMENT = Metadata(name="toy", id="_toy_cpu_a", version=1, license="MIT", backend="cpu").to_json()
ALWAYS = '[[rule]]\nadmit = "always"\n'


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    return policies.without_policies(monkeypatch, tmp_path)


def admit(subject=HERE, *, registry=None, bundle=None, trust_remote_code=False):
    if registry is not None:
        subject = replace(subject, is_trusted_publisher=registry.is_trusted_publisher)
    case = admission.Case(subject, Environment.read(), trust_remote_code)
    admitted, _ = case.admit(DOCUMENT, lambda: bundle)
    return admitted


# -- without a policy --------------------------------------------------------------------------


def test_directory_is_admitted_and_hub_needs_consent():
    assert admit(Subject(repo_id=None, registry="file:///srv/toy")).rules
    assert admit(Subject(repo_id=REPO, registry="file:///srv/registry")).rules
    with pytest.raises(TrustError, match="built-in rule for remote registries"):
        admit()


@pytest.mark.parametrize(
    ("word", "fine"),
    [
        *((True, True), ([REPO], True), ((REPO,), True), ({REPO}, True)),
        *((["acme/other"], False), (False, False)),
    ],
)
def test_consent_of_the_caller(word, fine):
    if fine:
        admit(trust_remote_code=word)
    else:
        with pytest.raises(ValueError, match="the caller did not allow it"):
            admit(trust_remote_code=word)


@pytest.mark.parametrize("word", [REPO, None, 1])
def test_malformed_consent_is_an_error(word):
    with pytest.raises(RequestError, match="trust_remote_code"):
        admit(trust_remote_code=word)


def test_trusted_publisher_needs_no_consent(tmp_path):
    registry = Remote(tmp_path, publishers=("acme",))
    admit(registry=registry)
    assert registry.asked == ["acme"]
    with pytest.raises(TrustError, match=r"'evil' is not a trusted publisher on hub\.example;"):
        admit(Subject(repo_id="evil/toy", registry=HUB), registry=registry)
    admit(registry=registry, trust_remote_code=True)
    assert registry.asked == ["acme", "evil"], "who has the caller's word is not asked about"


def test_unavailable_hub_falls_back_to_its_last_answer(tmp_path, caplog):
    registry = Remote(tmp_path, publishers=("acme",))
    registry.reachable = False
    with pytest.raises(TrustError, match="is unavailable"):
        admit(registry=registry)
    registry.reachable = True
    admit(registry=registry)
    registry.reachable = False
    with caplog.at_level(logging.WARNING):
        admit(registry=registry)
    assert "marked acme as a trusted publisher before" in caplog.text
    with pytest.raises(TrustError, match="is unavailable"):
        admit(Subject(repo_id="evil/toy", registry=HUB), registry=registry)
    with pytest.raises(TrustError, match="is unavailable"):
        admit(Subject(repo_id=REPO, registry="https://other.example"), registry=registry)
    registry.reachable, registry.publishers = True, ()
    with pytest.raises(TrustError, match="not a trusted publisher"):
        admit(registry=registry)
    registry.reachable = False
    with pytest.raises(TrustError, match="is unavailable"):
        admit(registry=registry)


# -- policies ----------------------------------------------------------------------------------


def test_nothing_loosens_the_sites_policy(place, monkeypatch, tmp_path):
    write(place, '[[rule]]\nrepo = "acme/*"\nadmit = "never"\nreason = "ask Kim first"\n')
    user(ALWAYS)
    write(Path("pyproject.toml"), '[[tool.kernforge.trust.rule]]\nadmit = "always"\n')
    other = tmp_path / "other.toml"
    write(other, ALWAYS)
    for chosen in (None, other):
        if chosen:
            monkeypatch.setenv("KERNFORGE_TRUST", str(chosen))
        with pytest.raises(TrustError, match="ask Kim first") as caught:
            admit(trust_remote_code=True)
        assert f"only the maintainer of {place}" in caught.value.hint
    admit(Subject(repo_id="other/toy", registry=HUB))


def test_changed_policy_applies_at_once():
    user(NEVER)
    with pytest.raises(TrustError):
        admit()
    user(ALWAYS)
    admit()


def test_unreadable_policy_of_the_variable_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNFORGE_TRUST", str(tmp_path / "absent.toml"))
    with pytest.raises(TrustError, match=r"absent\.toml"):
        admit(trust_remote_code=True)
    monkeypatch.setenv("KERNFORGE_TRUST", str(tmp_path))
    with pytest.raises(TrustError, match="cannot be read"):
        admit(trust_remote_code=True)
    for text, told in (("x = [", "not TOML"), ("x = 1", "unknown key 'x'")):
        write(tmp_path / "p.toml", text)
        monkeypatch.setenv("KERNFORGE_TRUST", str(tmp_path / "p.toml"))
        with pytest.raises(TrustError, match=told):
            admit(trust_remote_code=True)


def test_dangling_policy_link_admits_nothing(place, tmp_path):
    place.parent.mkdir()
    place.symlink_to(tmp_path / "moved.toml")
    with pytest.raises(TrustError, match="cannot be read"):
        admit(trust_remote_code=True)


def test_hub_is_asked_only_for_rules_with_publishers(tmp_path):
    registry = Remote(tmp_path, publishers=("acme",))
    user('[[rule]]\nadmit = "asked"\n')
    with pytest.raises(TrustError):
        admit(registry=registry)
    assert not registry.asked
    user('[[rule]]\nadmit = "asked"\npublishers = "hub"\n')
    admit(registry=registry)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("", HERE),
        (NEVER, HERE),
        (NEVER, Subject(repo_id=None, registry="file:///srv/toy")),
        ('[[rule]]\nadmit = "asked"\n', HERE),
    ],
    ids=["none", "never", "directory", "asked"],
)
def test_hint_of_a_refusal_admits_exactly_that_kernel(text, subject):
    user(text)
    with pytest.raises(TrustError) as caught:
        admit(subject)
    rule = "[[rule]]" + caught.value.hint.partition("[[rule]]")[2]
    assert tomllib.loads(rule)["rule"][0]["admit"] == "always"
    advised = f'trust_remote_code=["{subject.repo_id}"]' in caught.value.hint
    assert advised == (text != NEVER), "the word of the caller does not satisfy never"
    assert str(admission.user_policy(Environment.read())) in caught.value.hint
    user(f"{rule}\n{text}")
    admit(subject)
    other = Subject(repo_id="acme/toys", registry=subject.registry + "s")
    with pytest.raises(TrustError):
        admit(other)


# -- signed kernels ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key():
    return Key()


def signed(key, **fields):
    """A document of version 1 of acme/toy, or with other fields, and its signature."""
    words = {"name": "toy", "id": "_toy_cpu_a", "version": 1, "license": "MIT", "backend": "cpu"}
    document = Metadata(**words | fields).to_json()
    return document, key.sign([document])[0]


def admit_signed(subject, document, bundle):
    return admission.Case(subject, Environment.read(), trust_remote_code=True).admit(
        document, lambda: bundle
    )


def test_signature_of_a_listed_signer_admits(key):
    user(policies.SIGNED.format(key.public_text))
    document, bundle = signed(key)
    admitted, metadata = admit_signed(HERE, document, bundle)
    assert admitted == admission.Admission(
        rules=(f"{admission.user_policy(Environment.read())}: rule 1",),
        signers=("s",),
        registry=HUB,
        document=hashlib.sha256(document).hexdigest(),
    )
    assert metadata.name == "toy"


def test_unsigned_or_foreign_document_is_refused(key):
    user(policies.SIGNED.format(key.public_text))
    document, _ = signed(key)
    for bundle, told in (
        (None, "it is not signed, and must be by one of: s"),
        (Key().sign([document])[0], "not one of s"),
    ):
        with pytest.raises(TrustError, match=told) as caught:
            admit_signed(HERE, document, bundle)
        assert "ask its publisher to sign it" in caught.value.hint
        assert "always" not in caught.value.hint, "never the advice to do without a signature"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "other"}, "the signed document of a kernel 'other'"),
        ({"name": "toys"}, "the signed document of a kernel 'toys'"),
        ({"version": 1}, "version 1, not of the requested version 2"),
        ({"version": 3}, "version 3, not of the requested version 2"),
        ({"version": 2}, None),
    ],
)
def test_signed_document_of_another_kernel_or_version_is_refused(key, fields, told):
    user(policies.SIGNED.format(key.public_text))
    subject = replace(HERE, major=2)
    document, bundle = signed(key, **fields)
    if told is None:
        admit_signed(subject, document, bundle)
        return
    with pytest.raises(TrustError, match=told):
        admit_signed(subject, document, bundle)


def test_case_and_dashes_make_no_other_name(key):
    user(policies.SIGNED.format(key.public_text))
    document, bundle = signed(key, name="my-toy")
    admit_signed(Subject(repo_id="acme/My_Toy", registry=HUB), document, bundle)


def test_rule_about_a_document_holds_for_its_whole_hash(key):
    document, bundle = signed(key)
    digest = hashlib.sha256(document).hexdigest()
    rule = '[[rule]]\ndocument = "{}"\nadmit = "never"\n' + ALWAYS
    user(rule.format(digest[:32] + "0" * 32))
    admit_signed(HERE, document, bundle)
    user(rule.format(digest))
    with pytest.raises(TrustError, match="refused by name") as caught:
        admit_signed(HERE, document, bundle)
    assert caught.value.hint == "load another version"


def test_redirect_needs_what_its_own_kernel_needs(key):
    user(policies.SIGNED.format(key.public_text))
    case = admission.Case(HERE, Environment.read(), trust_remote_code=True)
    with pytest.raises(TrustError, match="a redirect is not signed, and must be by one of: s"):
        case.admit_unsigned("a redirect")
    user(ALWAYS)
    assert case.admit_unsigned("a redirect").rules


def test_subject_carries_the_request(tmp_path):
    registry = Remote(tmp_path, publishers=("acme",))
    answer = SimpleNamespace(repo_id=REPO, registry=registry, major=4)
    subject = Subject.of(answer)
    assert (subject.repo_id, subject.registry, subject.major) == (REPO, HUB, 4)
    assert subject.is_trusted_publisher("acme")
    assert str(subject) == f"{REPO} from {HUB}"
    assert str(Subject.of(tmp_path)) == Subject.of(tmp_path).registry == tmp_path.as_uri()


def test_policy_of_the_how_to_page_is_valid():
    page = (Path(__file__).parents[3] / "docs/how-to/platform/set-a-trust-policy.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    read = policy.read(text.encode(), "page")
    assert [rule.admit.value for rule in read.rules] == ["signed", "signed", "always", "never"]
