# SPDX-License-Identifier: Apache-2.0
"""A registry gives something else than what was asked for, signed by the right signer or moved.

Who can write to it, but has no key, writes a redirect around the policy (A6), puts one signed
kernel in the place of another, or an old version in the place of a new one (B1).
"""

import pytest

from kernforge.artifact.metadata import SIGNATURE
from kernforge.errors import NotPublishedError, TrustError
from kernforge.loader.search import Search, asked_for, find_kernel
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.trust import signature, signing

POLICY = """\
[signer.acme]
public-key = "{key}"

[[rule]]
repo = "acme/*"
admit = "signed"
signers = "acme"

[[rule]]
repo = "open/*"
admit = "always"

[[rule]]
repo = "bad/*"
admit = "never"

[[rule]]
repo = "asked/*"
admit = "asked"

[[rule]]
admit = "always"
"""


@pytest.fixture
def place(tmp_path):
    private, public = signature.new_key(None)
    policy = tmp_path / "trust.toml"
    policy.write_text(POLICY.format(key=signing.public_text(public)))
    environment = Environment(
        {"KERNFORGE_HOME": str(tmp_path / "home"), "KERNFORGE_TRUST": str(policy)}
    )
    registry = DirectoryRegistry(tmp_path / "registry")
    key = signing.Key(pem=private, passphrase=None)
    return Place(tmp_path, environment, registry, key)


class Place:
    def __init__(self, root, environment, registry, key):
        self.root, self.environment = root, environment
        self.registry, self.key, self.count = registry, key, 0

    def variant(self, write_variant, name, version=1, *, sign=True):
        self.count += 1
        unique = f"{name}{version}"
        path = write_variant(
            self.root / f"b{self.count}", name=name, version=version, unique=unique
        )
        if sign:
            signing.sign([path], self.key.sign)
        return path

    def publish(self, repo_id, path, refs, more=None):
        tree = {}
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            digest = files.sha256_file(file)
            self.registry.add_blob(repo_id, digest, file)
            tree[f"build/{path.name}/{file.relative_to(path).as_posix()}"] = digest
        commit, _ = self.registry.add_snapshot(repo_id, tree)
        for name, text in (more or {}).items():
            (self.registry.snapshot(repo_id, commit) / name).write_text(text)
        for ref in refs:
            self.registry.set_ref(repo_id, ref, commit)
        return commit

    def find(self, repo_id, version=None, revision=None, *, trust=False):
        search = Search(self.registry, "cpu", self.environment, trust)
        return find_kernel(search, repo_id, version, revision)


def moved(destination):
    return {"kernel-status.toml": f'kind = "redirect"\ndestination = "{destination}"\n'}


@pytest.mark.parametrize("old", ["acme/toy", "bad/toy", "asked/toy"])
def test_a_redirect_does_not_lead_around_the_rule_of_the_name(place, write_variant, old):
    evil = place.variant(write_variant, "toy", sign=False)
    place.publish("evil/toy", evil, ["main", "v1"])
    place.publish(old, evil, ["main", "v1"], moved("evil/toy"))
    assert place.find("evil/toy", 1).metadata.name == "toy"  # its own rule admits it
    with pytest.raises(TrustError):
        place.find(old, 1)


def test_a_redirect_to_another_kernel_of_the_same_signer_is_refused(place, write_variant):
    danger = place.variant(write_variant, "danger")
    place.publish("acme/danger", danger, ["main", "v1"])
    toy = place.variant(write_variant, "toy")
    place.publish("acme/toy", toy, ["main", "v1"], moved("acme/danger"))
    with pytest.raises(TrustError, match="demands a signature, and a redirect has none") as raised:
        place.find("acme/toy", 1)
    assert "name acme/danger itself" in raised.value.hint


def test_a_chain_of_redirects_is_held_to_each_rule(place, write_variant):
    toy = place.variant(write_variant, "toy", sign=False)
    place.publish("evil/toy", toy, ["main", "v1"])
    place.publish("acme/toy", toy, ["main", "v1"], moved("evil/toy"))
    place.publish("open/toy", toy, ["main", "v1"], moved("acme/toy"))
    with pytest.raises(TrustError):
        place.find("open/toy", 1)


def test_a_redirect_that_the_rules_allow_is_followed(place, write_variant):
    toy = place.variant(write_variant, "toy", sign=False)
    place.publish("new/toy", toy, ["main", "v1"])
    place.publish("open/toy", toy, ["main", "v1"], moved("new/toy"))
    place.publish("asked/toy", toy, ["main", "v1"], moved("new/toy"))
    assert place.find("open/toy", 1).repo_info.repo_id == "new/toy"
    assert place.find("asked/toy", 1, trust=True).repo_info.repo_id == "new/toy"


def test_a_signed_document_of_another_kernel_is_refused(place, write_variant):
    danger = place.variant(write_variant, "danger")
    assert (danger / SIGNATURE).is_file()
    place.publish("acme/toy", danger, ["main", "v1"])
    with pytest.raises(TrustError, match="signed document of a kernel 'danger'"):
        place.find("acme/toy", 1)


@pytest.mark.parametrize(
    ("version", "revision"),
    [
        *((2, None), ("2", None), ("2.0.1", None), ("~=2.0", None), ("==2.0.1", None)),
        *((None, "v2"), (None, "v2.0.1")),
    ],
)
def test_a_signed_document_of_another_version_is_refused(place, write_variant, version, revision):
    old = place.variant(write_variant, "toy", 1)
    place.publish("acme/toy", old, ["main", "v1", "v2", "v2.0.1"])
    assert place.find("acme/toy", 1).metadata.version == 1
    with pytest.raises(TrustError, match=r"version 1; version 2 was asked for"):
        place.find("acme/toy", version, revision)


def test_what_was_asked_for_loads(place, write_variant):
    new = place.variant(write_variant, "to-y", 2)
    place.publish("acme/to_y", new, ["main", "v2", "v2.0.1"])
    for version, revision in [(2, None), ("~=2.0", None), (None, "v2"), (None, "main")]:
        assert place.find("acme/to_y", version, revision).metadata.version == 2
    with pytest.raises(NotPublishedError):
        place.find("acme/to_y", 3)


def test_ranges_of_several_majors_name_none():
    assert [asked_for(v, None).major for v in (">=1", ">=1.1,<3", "!=2", "<2")] == [None] * 4
    assert [asked_for(None, r).major for r in ("main", "a" * 40, "v2x")] == [None] * 3
