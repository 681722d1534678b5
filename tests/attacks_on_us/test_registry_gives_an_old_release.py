# SPDX-License-Identifier: Apache-2.0
"""A registry gives what was signed once, and is not what should be loaded now (B1).

Who can write to it, but has no key, puts an old release in the place of a new one, hides a new one,
gives one owner's kernel under the name of another, or uses a key that was stolen. Policies that ask
for the signed list of releases, and those that revoke, refuse each.
"""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from kernforge.errors import TrustError
from kernforge.loader.search import Search, find_kernel
from kernforge.publish import releases as lists
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.trust import revocation, signature, signing
from kernforge.trust.releases import BRANCH, FILE, SIGNATURES, Releases, write_signatures

PEOPLE = ("ann", "ben", "cid")
RULE = """
[[rule]]
repo = ["acme/*", "other/*"]
admit = "signed"
signers = ["ann", "ben"]
releases = "{releases}"
threshold = {threshold}
"""


class Place:
    """A registry with releases of acme/toy, signed by ann, and a machine with a policy."""

    def __init__(self, root, write_variant):
        self.root, self.write_variant = root, write_variant
        self.registry = DirectoryRegistry(root / "registry")
        self.keys, self.public = {}, {}
        for name in PEOPLE:
            private, public = signature.new_key(None)
            self.keys[name] = signing.Key(pem=private, passphrase=None)
            self.public[name] = signing.public_text(public)
        self.file = root / "trust.toml"
        self.environment = Environment(
            {"KERNFORGE_HOME": str(root / "home"), "KERNFORGE_TRUST": str(self.file)}
        )
        self.policy()

    def policy(self, releases="fresh", threshold=1, more=""):
        signers = "".join(f'[signer.{n}]\npublic-key = "{k}"\n' for n, k in self.public.items())
        rule = RULE.format(releases=releases, threshold=threshold)
        self.file.write_text(signers + rule + more)

    def release(self, version, *, who="ann", repo_id="acme/toy", refs=("v1",)):
        path = self.write_variant(
            self.root / f"{who}-{version}-{repo_id.partition('/')[0]}",
            unique="u" + version.replace(".", "x"),
            files={"__init__.py": f"VERSION = {version!r}\n"},
        )
        signing.sign([path], self.keys[who].sign)
        tree = {}
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            digest = files.sha256_file(file)
            self.registry.add_blob(repo_id, digest, file)
            tree[f"build/{path.name}/{file.relative_to(path).as_posix()}"] = digest
        commit, _ = self.registry.add_snapshot(repo_id, tree)
        for ref in (f"v{version}", *refs):
            self.registry.set_ref(repo_id, ref, commit)
        return commit

    def list(self, who="ann", *, days=30, repo_id="acme/toy"):
        return lists.write_releases(self.registry, repo_id, self.keys[who], days=days)

    def forge(self, who="ann", repo_id="acme/toy", **changes):
        """Put a list with changes, signed by the right key, as a stale or stolen one is."""
        commit = self.registry.ref(repo_id, BRANCH)
        known = Releases.from_json(self.registry.small_file(repo_id, commit, FILE))
        values = {name: getattr(known, name) for name in known.__slots__}
        document = Releases(**{**values, **changes}).to_json()
        signed = write_signatures(self.keys[who].sign([document]))
        self.registry.write_branch(repo_id, BRANCH, {FILE: document, SIGNATURES: signed})

    def find(self, version=1, *, revision=None, repo_id="acme/toy"):
        search = Search(self.registry, "cpu", self.environment)
        return find_kernel(search, repo_id, None if revision else version, revision)


@pytest.fixture
def place(tmp_path, write_variant):
    place = Place(tmp_path, write_variant)
    place.release("1.0.0")
    place.release("1.1.0")
    return place


def test_what_is_listed_and_fresh_loads_with_its_full_version(place):
    place.list()
    for asked in (1, "1", "1.1.0", "~=1.0", ">=1.0,<2"):
        assert place.find(asked).admission.release == "1.1.0"
    # Who names an old release means it.
    assert place.find("1.0.0").admission.release == "1.0.0"
    assert place.find(revision="v1.0.0").admission.release == "1.0.0"
    assert place.find("1.1.0").admission.signers == ("ann",)


def test_without_a_list_nothing_loads_where_one_is_demanded(place):
    with pytest.raises(TrustError, match="no signed list of releases"):
        place.find()
    place.policy(releases="none")
    assert place.find().metadata.version == 1  # as before, where no policy asks


@pytest.mark.parametrize("asked", [1, "1", "~=1.0", ">=1.0,<2"])
def test_an_old_release_in_the_place_of_the_newest_is_refused(place, asked):
    old = place.registry.ref("acme/toy", "v1.0.0")
    place.list()
    for ref in ("v1", "v1.1.0"):
        place.registry.set_ref("acme/toy", ref, old)
    with pytest.raises(TrustError, match=r"release 1\.0\.0, and 1\.1\.0 is the newest"):
        place.find(asked)
    place.policy(releases="none")
    assert place.find(asked).metadata.version == 1  # this is what it prevents


@pytest.mark.parametrize("demand", ["listed", "fresh"])
def test_an_exact_version_is_compared_in_full(place, demand):
    place.policy(releases=demand)
    place.list()
    place.registry.set_ref("acme/toy", "v1.1.0", place.registry.ref("acme/toy", "v1.0.0"))
    for version, revision in (("1.1.0", None), ("==1.1.0", None), (None, "v1.1.0")):
        with pytest.raises(TrustError, match=r"release 1\.0\.0; ==1\.1\.0 was asked for"):
            place.find(version, revision=revision)


def test_a_list_that_expired_is_refused(place):
    place.list()
    past = datetime.now(UTC) - timedelta(days=40)
    place.forge(issued=past, expires=past + timedelta(days=30))
    with pytest.raises(TrustError, match="expired at"):
        place.find()
    place.policy(releases="listed")
    assert place.find().admission.release == "1.1.0"


@pytest.mark.parametrize("demand", ["listed", "fresh"])
def test_a_list_older_than_one_that_this_machine_saw_is_refused(place, demand):
    place.policy(releases=demand)
    place.list()
    commit = place.registry.ref("acme/toy", BRANCH)
    place.find()
    place.release("1.2.0")
    place.list()
    assert place.find().admission.release == "1.2.0"
    # It is not expired, is signed, and names an older release as the newest.
    place.registry.set_ref("acme/toy", BRANCH, commit)
    place.registry.set_ref("acme/toy", "v1", place.registry.ref("acme/toy", "v1.1.0"))
    with pytest.raises(TrustError, match="has number 1, and this machine saw 2"):
        place.find()


def test_two_lists_of_one_number_are_refused(place):
    place.list()
    place.find()
    place.forge(documents={"1.1.0": {"torch-cpu": "0" * 64}})
    with pytest.raises(TrustError, match="two lists of releases with the number 1"):
        place.find()


def test_another_owners_kernel_of_the_same_name_and_signer_is_refused(place):
    place.list()
    place.release("1.5.0", repo_id="other/toy")
    place.list(repo_id="other/toy")
    listed = place.registry.ref("other/toy", BRANCH)
    files.remove_tree(place.registry.repo("acme/toy"))
    place.registry.repo("other/toy").rename(place.registry.repo("acme/toy"))
    assert place.registry.ref("acme/toy", BRANCH) == listed
    with pytest.raises(TrustError, match="list of releases is that of other/toy"):
        place.find()


def test_a_build_that_is_not_in_the_list_is_refused(place):
    place.list()
    place.release("1.2.0")  # signed, and nobody said that it is a release
    with pytest.raises(TrustError, match="does not have this build"):
        place.find()


@pytest.mark.parametrize(
    ("document", "signatures"),
    [
        (b"{}", None),
        (None, b"[]"),
        (None, b"{}"),
        (None, b"[" * 100_000),
        (b'{"type": "kernforge-releases"}', None),
        (b"[" * 100_000, None),
        (b"\xff", b"\xff"),
    ],
)
def test_a_list_that_is_no_list_is_a_typed_error(place, document, signatures):
    from kernforge.errors import KernforgeError  # noqa: PLC0415 - any of them

    place.list()
    commit = place.registry.ref("acme/toy", BRANCH)
    kept = {
        name: place.registry.small_file("acme/toy", commit, name) for name in (FILE, SIGNATURES)
    }
    if document is not None:
        kept = {FILE: document, SIGNATURES: write_signatures(place.keys["ann"].sign([document]))}
    if signatures is not None:
        kept[SIGNATURES] = signatures
    place.registry.write_branch("acme/toy", BRANCH, kept)
    with pytest.raises(KernforgeError):
        place.find()


def test_a_threshold_is_of_different_signers(place):
    place.policy(threshold=2)
    place.list()
    with pytest.raises(TrustError, match=r"signed by 2 of ann, ben; signed have: ann"):
        place.find()
    # The same signer twice, and one who is none of the rule's.
    commit = place.registry.ref("acme/toy", BRANCH)
    document = place.registry.small_file("acme/toy", commit, FILE)
    twice = [place.keys[who].sign([document])[0] for who in ("ann", "ann", "cid")]
    contents = {FILE: document, SIGNATURES: write_signatures(twice)}
    place.registry.write_branch("acme/toy", BRANCH, contents)
    with pytest.raises(TrustError, match="signed have: ann"):
        place.find()
    lists.add_signature(
        place.registry, "acme/toy", place.keys["ben"], accepted=[place.keys["ann"].signer]
    )
    found = place.find()
    assert found.admission.signers == ("ann", "ben")


def test_one_key_under_two_names_is_one_signer(place):
    place.public["ben"] = place.public["ann"]
    place.policy(threshold=2)
    with pytest.raises(TrustError, match="1 different signers"):
        place.find()


def test_who_signs_a_list_signs_no_build_of_others(place):
    place.release("1.2.0", who="cid")  # got into the registry
    listed = place.list()
    assert listed.left_out == ("1.2.0 torch-cpu",)
    assert list(listed.releases.documents) == ["1.0.0", "1.1.0"]
    place.list("cid")
    with pytest.raises(TrustError, match=r"no accepted signer signed: 1\.2\.0"):
        lists.add_signature(place.registry, "acme/toy", place.keys["ann"])


@pytest.mark.parametrize("how", ["key", "document"])
def test_what_is_revoked_does_not_load(place, tmp_path, how):
    place.list()
    found = place.find()
    entry = {"key": place.public["ann"], "document": found.admission.document}
    assert revocation.revoke(place.file, **{how: entry[how]}, reason="stolen")
    assert not revocation.revoke(place.file, **{how: entry[how]})
    with pytest.raises(TrustError, match=r"revoked 1 revokes it \(stolen\)") as raised:
        place.find()
    assert "always" not in raised.value.hint  # advice to admit it would be that of the thief
    if how == "document":  # the other release still does
        assert place.find("1.0.0").admission.release == "1.0.0"


def test_a_policy_of_the_project_revokes_for_all(place, tmp_path, monkeypatch):
    place.list()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        f'[[tool.kernforge.trust.revoked]]\npublic-key = "{place.public["ann"]}"\n'
    )
    with pytest.raises(TrustError, match="revokes it"):
        place.find()


def test_a_revoked_key_is_named_so_when_it_is_no_signer_any_more(place):
    place.list()
    revocation.revoke(place.file, key=place.public["ann"], reason="stolen")
    place.public["ann"] = place.public["cid"]  # the name goes to a new key
    place.policy(more=f"\n[[revoked]]{place.file.read_text().partition('[[revoked]]')[2]}")
    with pytest.raises(TrustError, match=r"revokes it \(stolen\)"):
        place.find()


def test_a_revoked_key_does_not_count_for_a_threshold(place):
    place.policy(threshold=2)
    place.list()
    lists.add_signature(
        place.registry, "acme/toy", place.keys["ben"], accepted=[place.keys["ann"].signer]
    )
    assert place.find().admission.release == "1.1.0"
    revocation.revoke(place.file, key=place.public["ben"])
    with pytest.raises(TrustError, match="signed have: ann"):
        place.find()


def test_keys_are_rotated_without_a_gap(place):
    place.policy(more="")
    place.list("ann")
    assert place.find().admission.signers == ("ann",)
    # The new key signs the next release and the list; it vouches for what the old one signed.
    place.release("1.2.0", who="ben")
    lists.write_releases(
        place.registry, "acme/toy", place.keys["ben"], accepted=[place.keys["ann"].signer], days=9
    )
    assert place.find().admission.signers == ("ben",)
    assert place.find("1.1.0").admission.signers == ("ann", "ben")
    revocation.revoke(place.file, key=place.public["ann"])
    assert place.find().admission.release == "1.2.0"
    with pytest.raises(TrustError, match="revokes it"):
        place.find("1.1.0")


def test_a_signature_of_metadata_is_none_of_a_list(place):
    """The signed bytes of one kind of document are not taken for the other."""
    place.list()
    commit = place.registry.ref("acme/toy", "v1")
    document = place.registry.metadata("acme/toy", commit, "torch-cpu")
    bundle = place.registry.companion("acme/toy", commit, "torch-cpu", "metadata.json.sigstore")
    contents = {FILE: document, SIGNATURES: json.dumps([json.loads(bundle)]).encode()}
    place.registry.write_branch("acme/toy", BRANCH, contents)
    from kernforge.errors import IntegrityError  # noqa: PLC0415 - for this one

    with pytest.raises(IntegrityError, match=r"releases\.json cannot be read"):
        place.find()


def test_lists_have_growing_numbers(place):
    first = place.list()
    time.sleep(0.01)
    assert place.list().releases.number == first.releases.number + 1
