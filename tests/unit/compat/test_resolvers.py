# SPDX-License-Identifier: Apache-2.0
"""What the client's resolvers load is held to the same rules as what ``get_kernel`` loads."""

import json

import pytest
from support import policies

from kernforge.compat import resolvers
from kernforge.errors import IntegrityError, TrustError
from kernforge.loader.importer import RepoInfo
from kernforge.trust import signature, signing


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    policies.without_policies(monkeypatch, tmp_path)


def loaded(directory):
    (variant,) = directory.iterdir()
    return resolvers.DepTreeNode(resolvers.resolve_local_kernel(variant, backend="cpu"), {}).load()


def test_a_kernel_is_loaded_once_and_recorded(build, tmp_path):
    directory = build()
    assert loaded(directory) is loaded(directory)
    (log,) = tmp_path.rglob("loads.jsonl")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["kernel"] for entry in entries] == ["toy"]


def test_what_a_policy_refuses_is_not_loaded(build):
    policies.user(policies.NEVER)
    with pytest.raises(TrustError, match="refused by name"):
        loaded(build(files={"__init__.py": "raise SystemExit('it was run')"}))


def test_a_file_that_no_digest_covers_is_refused(build):
    directory = build(files={"__init__.py": "raise SystemExit('it was run')"})
    (directory / "torch-cpu" / "more.py").touch()
    with pytest.raises(IntegrityError, match=r"extra: more\.py"):
        loaded(directory)


def test_a_kernel_of_a_hub_without_a_digest_is_refused(build):
    variant = build(digest=False) / "torch-cpu"
    with pytest.raises(IntegrityError, match="has no digest"):
        resolvers.import_from_path(variant, {}, RepoInfo("owner/toy", "a" * 40))
    assert resolvers.import_from_path(variant, {}).ANSWER == 42


def test_a_signature_is_demanded_of_a_kernel_by_its_name(build):
    private, public = signature.new_key(None)
    key = signing.Key(pem=private, passphrase=None)
    policies.user(policies.SIGNED.format(signing.public_text(public)))
    unsigned, signed = build(), build()
    signing.sign([signed / "torch-cpu"], key.sign)
    origin = RepoInfo("acme/toy", "a" * 40)
    with pytest.raises(TrustError, match="it is not signed"):
        resolvers.import_from_path(unsigned / "torch-cpu", {}, origin)
    with pytest.raises(TrustError, match="the signed document of a kernel 'toy'"):
        resolvers.import_from_path(signed / "torch-cpu", {}, RepoInfo("acme/other", "a" * 40))
    assert resolvers.import_from_path(signed / "torch-cpu", {}, origin).ANSWER == 42
