# SPDX-License-Identifier: Apache-2.0
"""Sign, verify and describe variants of a directory or a registry by the command line."""

import json
import shutil
import stat
from pathlib import Path

import pytest
from support.commands import call
from support.projects import write_toy
from support.signatures import IDENTITY, ISSUER, Sigstore, token

from kernels import verify as client
from kernforge.artifact.metadata import SIGNATURE
from kernforge.audit import verify
from kernforge.builder.provenance import FILE as STATEMENT
from kernforge.errors import IntegrityError, TrustError, UsageError
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system.digest import sha256
from kernforge.system.environment import Environment
from kernforge.trust import admission, signing
from kernforge.trust.policy import fingerprint, public_key

REPO = "acme/toy"


def verified(capsys, *argv: str) -> tuple[int, list[dict]]:
    """Exit code and report of ``verify --json``."""
    capsys.readouterr()
    code = call("verify", *argv, "--json")
    document = json.loads(capsys.readouterr().out)
    return code, document


def test_a_new_key_is_private_encrypted_and_overwrites_nothing(key, capsys, monkeypatch):
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert b"ENCRYPTED" in key.read_bytes()
    before = key.read_bytes()
    assert call("sign", "--new-key", str(key)) == UsageError.exit_code
    assert key.read_bytes() == before
    monkeypatch.setenv("KERNFORGE_SIGN_PASSPHRASE", "")
    assert call("sign", "--new-key", "open.key") == 0
    assert b"ENCRYPTED" not in Path("open.key").read_bytes()
    assert 'public-key = "MCowBQYDK2VwAyEA' in capsys.readouterr().out


def test_a_missing_passphrase_without_a_terminal_is_an_error(key, build, monkeypatch, capsys):
    monkeypatch.delenv("KERNFORGE_SIGN_PASSPHRASE")
    assert call("sign", str(build), "--key", str(key)) == UsageError.exit_code
    assert "KERNFORGE_SIGN_PASSPHRASE" in capsys.readouterr().err
    assert not list(build.rglob(SIGNATURE))


def test_signed_published_and_verified(key, build, tmp_path, capsys):
    assert call("sign", str(build), "--key", str(key)) == 0
    first = publish(build, DirectoryRegistry(tmp_path / "registry"), REPO)
    assert call("sign", str(build), "--key", str(key)) == 0
    again = publish(build, DirectoryRegistry(tmp_path / "registry"), REPO)
    assert (again.commit, again.changed) == (first.commit, False), "a key signs the same each time"
    for what in (REPO, str(build), str(build.parent), str(build / "torch-cpu")):
        code, found = verified(capsys, what, "--key", f"{key}.pub")
        assert code == 0, what
        assert {one["signer"] for one in found} == {"acme.key.pub"}
        assert {one["files"] for one in found} == {2}
    assert [one["variant"] for one in found] == ["torch-cpu"]


def test_publish_signs_its_variants(key, build, tmp_path, capsys):
    write_toy(tmp_path)
    argv = ("publish", str(tmp_path), "--repo-id", REPO, "--version", "1.0.0")
    assert call(*argv, "--sign", str(key)) == 0
    assert "is signed as" not in capsys.readouterr().err
    assert verified(capsys, REPO, "--version", "1.0.0", "--key", f"{key}.pub")[0] == 0
    assert call(*argv[:3], "acme/other", "--sign", str(key)) == 0
    assert "acme/other is signed as 'toy'" in capsys.readouterr().err


def change_file(variant):
    (variant / "__init__.py").write_text("changed")


def change_metadata(variant):
    path = variant / "metadata.json"
    path.write_bytes(path.read_bytes().replace(b"Apache-2.0", b"MIT"))


TAMPERED = {
    "changed file": (change_file, "DigestVerificationFailure", 9),
    "added file": (lambda v: (v / "more.py").touch(), "DigestVerificationFailure", 9),
    "changed metadata": (change_metadata, "SignatureVerificationFailure", 12),
    "no metadata": (
        lambda v: (v / "metadata.json").write_bytes(b"{}"),
        "SignatureVerificationFailure",
        9,
    ),
    "no bundle": (lambda v: (v / SIGNATURE).write_bytes(b"{}"), "SignatureBundleInvalid", 9),
    "unsigned": (lambda v: (v / SIGNATURE).unlink(), "SignatureBundleMissing", 12),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_tampered_variant_has_a_result_and_an_exit_code(how, key, build, capsys):
    tamper, result, code = TAMPERED[how]
    assert call("sign", str(build), "--key", str(key)) == 0
    tamper(build / "torch-cpu")
    done, found = verified(capsys, str(build), "--key", f"{key}.pub")
    assert done == code
    assert {one["variant"]: one["result"] for one in found} == {
        "torch-cpu": result,
        "torch-cuda": "Success",
    }
    assert verified(capsys, str(build), "--key", f"{key}.pub", "--variant", "*cuda")[0] == 0


def test_allow_unsigned_hides_no_changed_file(build, capsys):
    assert verified(capsys, str(build))[0] == TrustError.exit_code
    assert verified(capsys, str(build), "--allow-unsigned")[0] == 0
    change_file(build / "torch-cpu")
    code, found = verified(capsys, str(build), "--allow-unsigned")
    assert code == IntegrityError.exit_code
    assert [*found[0]["problems"]] == ["SignatureBundleMissing", "DigestVerificationFailure"]


def test_a_missing_digest_needs_allow_no_digest(tmp_path, write_variant, capsys):
    write_variant(tmp_path / "old", digest=False)
    assert verified(capsys, "old", "--allow-unsigned")[0] == IntegrityError.exit_code
    assert verified(capsys, "old", "--allow-unsigned", "--allow-no-digest")[0] == 0


def test_results_have_the_names_of_the_kernels_client():
    names = {name for name in vars(client.VerificationResult) if name[0].isupper()} - {"Any"}
    assert names <= {result.value for result in verify.Result}


def test_a_changed_variant_prevents_every_signature(key, build):
    change_file(build / "torch-cuda")
    assert call("sign", str(build), "--key", str(key)) == IntegrityError.exit_code
    assert not list(build.rglob(SIGNATURE))


def test_a_statement_of_another_build_is_refused(tmp_path, write_variant, capsys):
    statement = {"subject": [{"name": "x", "digest": {"sha256": "00" * 32}}]}
    write_variant(tmp_path / "b", files={"__init__.py": "", STATEMENT: json.dumps(statement)})
    code, found = verified(capsys, "b", "--allow-unsigned")
    assert code == IntegrityError.exit_code
    assert found[0]["statement"] is False


def test_an_identity_signs_and_is_verified(build, tmp_path, capsys):
    instance = Sigstore()
    Path("token").write_text(token("me@example.org"))
    with instance.serve():
        argv = ("sign", str(build), "--identity-token", "token")
        assert call(*argv) == 0
        assert call(*argv) == UsageError.exit_code, "what is logged is not overwritten unasked"
    policy = admission.user_policy(Environment.read())
    policy.parent.mkdir(parents=True)
    for accepted, expected in (("me@example.org", 0), (IDENTITY, TrustError.exit_code)):
        policy.write_text(
            f'[signer.me]\nissuer = "{ISSUER}"\nidentity = "{accepted}"\n'
            '[[rule]]\nregistry = "file://**"\nadmit = "signed"\nsigners = "me"\n'
        )
        with instance.as_public():
            code, found = verified(capsys, str(build))
        assert code == expected
    assert "me@example.org" in str(found[0]["problems"])


def test_verify_reports_the_decision_of_the_policy(key, build, tmp_path, capsys):
    public = signing.open_key(key, lambda: "some words").public_text
    policy = admission.user_policy(Environment.read())
    policy.parent.mkdir(parents=True)
    policy.write_text(
        f'[signer.acme]\npublic-key = "{public}"\n[[rule]]\nadmit = "signed"\nsigners = "acme"\n'
    )
    code, found = verified(capsys, str(build))
    assert (code, found[0]["admitted"]) == (TrustError.exit_code, False)
    assert call("sign", str(build), "--key", str(key)) == 0
    code, found = verified(capsys, str(build))
    assert (code, found[0]["admitted"], found[0]["signer"]) == (0, True, "acme")
    publish(build, DirectoryRegistry(tmp_path / "registry"), "acme/other")
    found = verified(capsys, "acme/other")[1]
    assert "the signed document of a kernel 'toy'" in found[0]["refusal"]
    policy.write_text('[[rule]]\nadmit = "never"\nreason = "not here"\n')
    assert "not here" in verified(capsys, str(build), "--key", f"{key}.pub")[1][0]["refusal"]


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("info", "absent"), 2),
        (("info", "acme/absent"), 8),
        (("info", "."), 2),
        (("verify", REPO, "--version", "1", "--revision", "main"), 2),
        (("verify", "build", "--version", "1"), 2),
        (("verify", "build", "--variant", "nothing*"), 2),
        (("verify", "build", "--key", "absent.pub"), 2),
        (("sign", "build", "--key", "absent.key"), 2),
    ],
)
def test_a_missing_object_is_an_error(argv, code, write_variant, tmp_path):
    if argv[1] == "build":
        write_variant(tmp_path / "build")
    assert call(*argv) == code


# -- info ------------------------------------------------------------------------------------------


def test_info_names_the_variant_for_this_machine(key, build, tmp_path, capsys):
    assert call("sign", str(build / "torch-cpu"), "--key", str(key)) == 0
    publish(build, DirectoryRegistry(tmp_path / "registry"), REPO)
    shutil.copytree(build, tmp_path / "copy")
    for what in (REPO, "copy"):
        capsys.readouterr()
        assert call("info", what, "--json") == 0
        info = json.loads(capsys.readouterr().out)
        assert (info["license"], info["would_load"]) == ("Apache-2.0", "torch-cpu")
        best, other = info["variants"]
        assert (best["fits"], best["signed"], best["digest"]) == (True, True, True)
        assert (other["fits"], other["signed"]) == (False, False)
        assert "is for cuda" in other["reason"]
    assert call("info", REPO) == 0
    text = capsys.readouterr().out
    assert "would load here: torch-cpu" in text
    name = fingerprint(public_key(key.with_name("acme.key.pub").read_text(), ""))
    assert f"by the key {name}, not verified" in text
    assert best["signer"] == f"the key {name}"
    assert best["document"] == sha256((build / "torch-cpu/metadata.json").read_bytes())
    assert call("verify", REPO, "--key", f"{key}.pub", "--variant", "torch-cpu") == 0
    assert f"with the key {name}" in capsys.readouterr().out
    registry = DirectoryRegistry(tmp_path / "registry")
    registry.link_root(REPO).rename(registry.root / "kernels--owner--other")
    assert call("verify", "owner/other", "--key", f"{key}.pub", "--variant", "torch-cpu")
    said = capsys.readouterr().err
    assert "possible substitution" in said
    assert "accept a signer" not in said
    assert "versions: 1.0.0" in text


def test_info_lists_each_version_once(build, tmp_path, capsys):
    registry = DirectoryRegistry(tmp_path / "registry")
    made = [publish(build, registry, REPO, version) for version in ("1.0.0", "1.10.0", "1.2.0")]
    with registry.writing("hub/toy"):
        commit = registry.add_snapshot("hub/toy", registry.tree(REPO, made[0].commit))
        registry.set_ref("hub/toy", "v3", commit)
    for repo_id, names in ((REPO, ["1.0.0", "1.2.0", "1.10.0"]), ("hub/toy", ["3"])):
        capsys.readouterr()
        assert call("info", "--versions", repo_id, "--json") == 0
        assert [v["version"] for v in json.loads(capsys.readouterr().out)] == names
    assert call("info", "--versions", "acme/absent") == 8
