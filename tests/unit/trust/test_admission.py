# SPDX-License-Identifier: Apache-2.0
import json
import logging
import shutil
import tomllib
from pathlib import Path

import pytest
from support.signatures import IDENTITY, ISSUER, Sigstore

from kernforge.artifact.metadata import SIGNATURE
from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.errors import IntegrityError, NetworkError, TrustError
from kernforge.loader import api as loader
from kernforge.loader import importer, search
from kernforge.loader.host import Host
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system.environment import Environment
from kernforge.trust import admission, policy, signature, signing
from kernforge.trust.policy import Subject

HUB = "https://hub.example"
REPO = "acme/toy"
HERE = Subject(repo_id=REPO, registry=HUB)
NEVER = '[[rule]]\nadmit = "never"\n'
ALWAYS = '[[rule]]\nadmit = "always"\n'


class Remote(DirectoryRegistry):
    """A directory that stands for a hub: its address, and whom it vouches for."""

    def __init__(self, root: Path, *, publishers: tuple[str, ...] | None = ()) -> None:
        super().__init__(root)
        self.url = HUB
        self.publishers = publishers
        self.asked: list[str] = []
        self.reachable = True

    def trusted_publisher(self, owner: str) -> bool | None:
        self.asked.append(owner)
        if not self.reachable:
            raise NetworkError(f"{HUB} cannot be reached", hint="try again")
        return None if self.publishers is None else owner in self.publishers


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    """A machine without policies, and where they would lie."""
    site = tmp_path / "etc" / "trust.toml"
    monkeypatch.setattr(admission, "SITE", site)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERNFORGE_TRUST", raising=False)
    monkeypatch.delenv("LOCAL_KERNELS", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    host = Host(cpu="x86_64", os="linux", backend=Backend("cpu"), torch=Version2(2, 13), cxx11=True)
    for module in (loader, search):
        monkeypatch.setattr(module, "probe", lambda _backend: host)
    return site


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def user(text: str) -> None:
    write(admission.user_policy(Environment.read()), text)


def admit(subject=HERE, *, registry=None, bundle=None, trust_remote_code=False):
    vouches = (lambda _owner: None) if registry is None else registry.trusted_publisher
    return admission.admit(
        subject,
        b"{}",
        signature=lambda: bundle,
        vouches=vouches,
        environment=Environment.read(),
        trust_remote_code=trust_remote_code,
    )


# -- without a policy --------------------------------------------------------------------------


def test_a_directory_is_admitted_and_a_hub_asks():
    assert admit(Subject(repo_id=None, registry="file:///srv/toy")).rules
    assert admit(Subject(repo_id=REPO, registry="file:///srv/registry")).rules
    with pytest.raises(TrustError, match="built-in rule for remote registries"):
        admit()


@pytest.mark.parametrize(
    ("word", "fine"), [(True, True), ([REPO], True), (["acme/other"], False), (False, False)]
)
def test_the_callers_word_is_taken_as_the_hubs_client_takes_it(word, fine):
    if fine:
        admit(trust_remote_code=word)
    else:
        with pytest.raises(ValueError, match="the caller did not allow it"):
            admit(trust_remote_code=word)


def test_a_hub_vouches_for_its_publishers(tmp_path):
    registry = Remote(tmp_path, publishers=("acme",))
    admit(registry=registry)
    assert registry.asked == ["acme"]
    with pytest.raises(TrustError, match="does not name 'evil'"):
        admit(Subject(repo_id="evil/toy", registry=HUB), registry=registry)
    admit(registry=registry, trust_remote_code=True)
    assert registry.asked == ["acme", "evil"], "who has the caller's word is not asked about"


def test_a_hub_that_cannot_be_asked_is_believed_as_before_and_no_further(tmp_path, caplog):
    registry = Remote(tmp_path, publishers=("acme",))
    registry.reachable = False
    with pytest.raises(TrustError, match="cannot be asked"):
        admit(registry=registry)
    registry.reachable = True
    admit(registry=registry)
    registry.reachable = False
    with caplog.at_level(logging.WARNING):
        admit(registry=registry)
    assert "named acme as a trusted publisher before" in caplog.text
    with pytest.raises(TrustError, match="cannot be asked"):
        admit(Subject(repo_id="evil/toy", registry=HUB), registry=registry)
    registry.reachable, registry.publishers = True, ()
    with pytest.raises(TrustError, match="does not name"):
        admit(registry=registry)
    registry.reachable = False
    with pytest.raises(TrustError, match="cannot be asked"):
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
        assert f"only who maintains {place}" in caught.value.hint
    admit(Subject(repo_id="other/toy", registry=HUB))


def test_a_project_tightens_and_does_not_loosen(tmp_path):
    table = "tool.kernforge.trust.rule"
    write(Path("../pyproject.toml"), f'[[{table}]]\nrepo = "acme/*"\nadmit = "always"\n')
    with pytest.raises(TrustError, match="built-in"):
        admit()
    write(Path("pyproject.toml"), f'[[{table}]]\nadmit = "never"\n')
    user(ALWAYS)
    with pytest.raises(TrustError, match="pyproject"):
        admit()
    with pytest.raises(TrustError, match="pyproject"):
        admit(Subject(repo_id=None, registry="file:///srv/toy"))


def test_a_project_that_says_nothing_of_trust_is_not_heard():
    for text in (
        "",
        "[tool]\nkernforge = 'trust'",
        "not toml at all [",
        '[project]\nname = "kernforge-trust"\n',
    ):
        write(Path("pyproject.toml"), text)
        admit(trust_remote_code=True)


def test_a_change_of_the_policy_counts_at_once():
    user(NEVER)
    with pytest.raises(TrustError):
        admit()
    user(ALWAYS)
    admit()


def test_a_policy_that_is_named_must_be_there_and_readable(monkeypatch, tmp_path):
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


def test_a_link_to_a_policy_that_is_gone_is_no_permission(place, tmp_path):
    place.parent.mkdir()
    place.symlink_to(tmp_path / "moved.toml")
    with pytest.raises(TrustError, match="a link to a file that does not exist"):
        admit(trust_remote_code=True)


def test_a_projects_policy_that_is_no_table_is_refused():
    write(Path("pyproject.toml"), '[tool.kernforge]\ntrust = "everybody"\n')
    with pytest.raises(TrustError, match="not a table"):
        admit(trust_remote_code=True)


def test_the_hub_is_asked_only_where_a_rule_leaves_it_to_it(tmp_path):
    registry = Remote(tmp_path, publishers=("acme",))
    user('[[rule]]\nadmit = "asked"\n')
    with pytest.raises(TrustError):
        admit(registry=registry)
    assert not registry.asked
    user('[[rule]]\nadmit = "asked"\npublishers = "hub"\n')
    admit(registry=registry)


SIGNED = '[signer.s]\npublic-key = "{}"\n[[rule]]\nrepo = "acme/*"\nadmit = "signed"\nsigners = "s"'


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("", HERE),
        (NEVER, HERE),
        (NEVER, Subject(repo_id=None, registry="file:///srv/toy")),
        ('[[rule]]\nadmit = "asked"\n', HERE),
        ("signed", HERE),
    ],
    ids=["none", "never", "directory", "asked", "signed"],
)
def test_the_hint_of_a_refusal_admits_exactly_that(text, subject):
    if text == "signed":
        text = SIGNED.format(signing.public_text(signature.new_key(None)[1]))
    user(text)
    with pytest.raises(TrustError) as caught:
        admit(subject)
    rule = "[[rule]]" + caught.value.hint.partition("[[rule]]")[2]
    assert tomllib.loads(rule)["rule"][0]["admit"] == "always"
    assert str(admission.user_policy(Environment.read())) in caught.value.hint
    user(f"{rule}\n{text}")
    admit(subject)
    other = Subject(repo_id="acme/toys", registry=subject.registry + "s")
    with pytest.raises(TrustError):
        admit(other)


# -- loading -----------------------------------------------------------------------------------


@pytest.fixture
def key(tmp_path):
    private, public = signature.new_key(None)
    return signing.Key(pem=private, passphrase=None), signing.public_text(public)


@pytest.fixture
def built(tmp_path, write_variant, request):
    """A built variant with an id of this test's own."""
    unique = f"{abs(hash(request.node.nodeid)) % 16**7:07x}"
    return write_variant(tmp_path / "build", unique=unique)


def remote(tmp_path, built) -> Remote:
    publish(built.parent, DirectoryRegistry(tmp_path / "registry"), REPO)
    return Remote(tmp_path / "registry", publishers=None)


def test_a_kernel_that_is_refused_is_not_even_read(tmp_path, built):
    registry = remote(tmp_path, built)
    for path in (tmp_path / "registry").rglob("metadata.json"):
        blob = path.resolve()
        blob.chmod(0o644)
        blob.write_text("not JSON")
    with pytest.raises(TrustError):
        loader.get_kernel(REPO, version=1, registry=registry)
    with pytest.raises(IntegrityError, match="not JSON"):
        loader.get_kernel(REPO, version=1, registry=registry, trust_remote_code=True)
    with pytest.raises(TrustError):
        loader.has_kernel(REPO, version=1, registry=registry)


def test_a_signed_kernel_loads_where_a_signature_is_demanded(tmp_path, built, key):
    signing.sign([built], key[0].sign)
    registry = remote(tmp_path, built)
    user(SIGNED.format(key[1]))
    assert loader.get_kernel(REPO, version=1, registry=registry).ANSWER == 42


def test_the_callers_word_is_no_signature(tmp_path, built, key):
    registry = remote(tmp_path, built)
    user(SIGNED.format(key[1]))
    with pytest.raises(TrustError, match="not signed"):
        loader.get_kernel(REPO, version=1, registry=registry, trust_remote_code=True)


def test_a_document_that_changed_under_its_signature_is_not_parsed(tmp_path, built, key):
    signing.sign([built], key[0].sign)
    user(SIGNED.replace('repo = "acme/*"', "").format(key[1]))
    (built / "metadata.json").write_bytes(b"not JSON, and whoever parses it says so")
    with pytest.raises(IntegrityError, match="does not fit its bytes"):
        loader.get_local_kernel(built)


def test_a_file_that_changed_under_a_signed_digest_is_not_run(tmp_path, built, key):
    signing.sign([built], key[0].sign)
    user(SIGNED.replace('repo = "acme/*"', "").format(key[1]))
    (built / "__init__.py").write_text("raise SystemExit('it was run')")
    with pytest.raises(IntegrityError, match=r"changed: __init__\.py"):
        loader.get_local_kernel(built)


def test_a_signature_without_a_digest_proves_nothing(tmp_path, write_variant, key):
    directory = write_variant(tmp_path / "build", unique="eeeeeee", digest=False)
    document = (directory / "metadata.json").read_bytes()
    (directory / SIGNATURE).write_bytes(key[0].sign([document])[0])
    user(SIGNED.replace('repo = "acme/*"', "").format(key[1]))
    with pytest.raises(IntegrityError, match="has no digest"):
        loader.get_local_kernel(directory)


def test_what_a_kernel_depends_on_is_held_to_the_policy_too(tmp_path, built, write_variant):
    registry = remote(tmp_path, built)
    user_of = write_variant(tmp_path / "user", unique="ddddddd", name="user", depends={REPO: 1})
    publish(user_of.parent, DirectoryRegistry(tmp_path / "registry"), "acme/user")
    with pytest.raises(TrustError, match="acme/toy from"):
        loader.get_kernel(
            "acme/user", version=1, registry=registry, trust_remote_code=["acme/user"]
        )


def test_an_identity_is_demanded_of_another_sigstore_instance(tmp_path, built):
    instance = Sigstore()
    document = (built / "metadata.json").read_bytes()
    (built / SIGNATURE).write_bytes(instance.sign(document))
    write(tmp_path / "config/kernforge/root.json", json.dumps(instance.trusted_root()))
    rule = '[[rule]]\nadmit = "signed"\nsigners = "builder"\n'
    signer = f'[signer.builder]\nissuer = "{ISSUER}"\ntrusted-root = "root.json"\n'
    user(f'{signer}identity = "{IDENTITY.replace("build.yaml", "*")}"\n{rule}')
    assert loader.get_local_kernel(built).ANSWER == 42
    user(f'{signer}identity = "{IDENTITY.replace("main", "release/*")}"\n{rule}')
    with pytest.raises(TrustError, match="which is not one of builder"):
        loader.get_local_kernel(built)


def test_a_link_does_not_lead_into_a_trusted_directory(tmp_path, built):
    elsewhere = shutil.copytree(built, tmp_path / "elsewhere" / built.name)
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    (trusted / built.name).symlink_to(elsewhere)
    user(f'[[rule]]\nregistry = "{trusted.as_uri()}/**"\nadmit = "always"\n{NEVER}')
    with pytest.raises(TrustError, match="elsewhere"):
        loader.get_local_kernel(trusted / built.name)


def test_what_was_refused_is_not_loaded(tmp_path, built):
    user(NEVER)
    before = len(importer.get_loaded_kernels())
    with pytest.raises(TrustError):
        loader.get_local_kernel(built)
    assert len(importer.get_loaded_kernels()) == before


def test_the_policy_of_the_how_to_page_is_one():
    page = (Path(__file__).parents[3] / "docs/how-to/platform/set-a-trust-policy.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    read = policy.parse(tomllib.loads(text), "page")
    assert [rule.admit.value for rule in read.rules] == ["signed", "signed", "always", "never"]
