# SPDX-License-Identifier: Apache-2.0
"""Our errors are those that callers of the client catch."""

import json

import pytest

import kernforge
from kernforge.artifact.metadata import Metadata
from kernforge.compat import commands, hub, loading, values, variants
from kernforge.compat import metadata as documents
from kernforge.errors import (
    AbsentError,
    DependencyError,
    KernelError,
    KernforgeError,
    MetadataError,
    MissingLockError,
    NotPublishedError,
    NoVariantError,
    TrustError,
)
from kernforge.loader import importer
from kernforge.publish.api import publish

OURS_AND_THEIRS = [
    (AbsentError, FileNotFoundError),
    (AbsentError, ValueError),
    (DependencyError, RuntimeError),
    (MetadataError, ValueError),
    (KernelError, ValueError),
    (MissingLockError, FileNotFoundError),
]


@pytest.mark.parametrize(("ours", "theirs"), OURS_AND_THEIRS)
def test_an_error_is_also_what_the_client_raises(ours, theirs):
    error = ours("what", hint="do")
    assert isinstance(error, theirs)
    assert isinstance(error, KernforgeError)
    assert str(error) == "what\ndo"


def test_what_a_hub_lacks_is_its_librarys_error():
    errors = pytest.importorskip("huggingface_hub.errors")
    error = hub.missing_error(NotPublishedError("what", hint="do"))
    assert isinstance(error, errors.RepositoryNotFoundError)
    assert isinstance(error, NotPublishedError)
    assert (str(error), error.hint, error.response) == ("what\ndo", "do", None)


def test_a_revision_without_any_variant_is_an_entry_that_the_hub_lacks():
    errors = pytest.importorskip("huggingface_hub.errors")
    none = "Cannot find a build variant for this system in a/b at 12"

    def raised(message):
        with pytest.raises(FileNotFoundError) as told, loading._as_the_client("a/b", None):
            raise NoVariantError(message, hint="do")
        return told.value

    error = raised(none)
    assert isinstance(error, errors.HfHubHTTPError)
    assert isinstance(error, NoVariantError)
    assert str(error) == f"{none}\ndo"
    for other in (
        f"{none}:\n\ntorch-cpu: no",
        none.replace(" at 12", ": there is no such directory"),
    ):
        assert not isinstance(raised(other), errors.HfHubHTTPError)


def test_the_publisher_is_asked_about_before_a_missing_kernel_is_told(monkeypatch):
    class Hub:
        def get_organization_overview(self, owner):
            raise OSError(owner)

    monkeypatch.setattr(hub, "get_hf_api", Hub)
    monkeypatch.setattr(hub, "is_offline", lambda: False)
    missing = NotPublishedError("the hub has no kernel 'a/b'")

    def told(trusted):
        under = loading._as_the_client("a/b", None, trusted=trusted)
        with pytest.raises((TrustError, NotPublishedError)) as raised, under:
            raise missing
        return str(raised.value)

    for trusted in (False, ["c/d"]):
        text = told(trusted)
        assert "'a/b' could not verify publisher trust status. Set trust_remote_code=True" in text
    for trusted in (True, ["a/b"]):
        assert told(trusted).startswith("the hub has no kernel")


def test_what_is_not_on_this_machine(tmp_path):
    with pytest.raises(FileNotFoundError, match="local snapshot"):
        kernforge.get_kernel("owner/none", version=1, registry=tmp_path)
    with pytest.raises(FileNotFoundError):
        kernforge.load_kernel("owner/none", lockfile=tmp_path / "none")


def test_a_dependency_outside_of_an_import():
    with pytest.raises(RuntimeError, match="only works during kernel loading"):
        kernforge.get_kernel_dep("owner/none")
    with importer.dependencies_of({}), pytest.raises(RuntimeError, match="was not found"):
        kernforge.get_kernel_dep("owner/none")


def test_documents_have_the_clients_shapes(build, tmp_path):
    variant = build(variant="torch-cpu", depends={"owner/other": 2}) / "torch-cpu"
    read = documents.Metadata.read_from_file(variant / "metadata.json")
    assert (str(read.name), read.backend.backend_type) == ("toy", values.Backend.CPU)
    assert read.kernel_depends == [
        values.KernelDependency("owner/other", values.KernelVersion.Version(2))
    ]
    digest = documents.Digest.hash_variant(documents.DigestAlgorithm.SHA256, variant)
    assert read.digest == digest
    assert isinstance(read.ours, Metadata)
    with pytest.raises(OSError, match="No such file"):
        documents.Metadata.read_from_file(tmp_path / "none")


def test_a_loaded_kernel_has_the_clients_fields(build):
    module = loading.get_local_kernel(build())
    kernel = next(k for k in loading.get_loaded_kernels() if k.module is module)
    assert kernel.repo_info is None
    assert kernel.metadata.name.python_name == "toy"
    path = next(p for p, k in loading.loaded_kernels.copy().items() if k.module is module)
    assert loading.loaded_kernels.pop(path).module is module
    assert path not in loading.loaded_kernels
    assert loading.get_local_kernel(path) is not module


def test_a_kernel_is_kernelized_for_a_device_of_a_mapping():
    nn = pytest.importorskip("torch").nn

    @kernforge.use_kernel_forward_from_hub("Unmapped")
    class Unmapped(nn.Module):
        pass

    model = Unmapped()
    device = kernforge.Device("cpu")
    assert kernforge.kernelize(model, mode=kernforge.Mode.INFERENCE, device=device) is model


def test_variants_have_the_clients_attributes():
    variant = variants.parse_variant("torch213-cxx11-cu130-x86_64-linux")
    assert (str(variant.framework.version), variant.framework.cxx11_abi) == ("2.13", True)
    assert (variant.arch.backend.name, variant.arch.backend.variant_str) == ("cuda", "cu130")
    assert variants.parse_variant("torch-npu").arch.backend_name == "npu"
    with pytest.raises(ValueError, match="Unknown framework"):
        variants.parse_variant("jax")


def test_an_older_version_is_warned_of(registry, build, monkeypatch, caplog):
    publish(build(), registry, "owner/toy")
    publish(build(version=2), registry, "owner/toy")
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(registry.root))
    loading.get_kernel("owner/toy", version=1)
    assert "You are using version 1 of 'owner/toy', but version 2 is available." in caplog.text
    caplog.clear()
    loading.get_kernel("owner/toy", version=2)
    assert "You are using" not in caplog.text


def test_what_a_version_is_also_of_version_0(registry, build, monkeypatch, capsys):
    publish(build(version=0), registry, "owner/toy")
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(registry.root))
    commands.print_kernel_info("owner/toy", version=0, json_output=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["revision"], found["name"], found["version"]) == ("v0", "toy", 0)


def test_a_kernel_without_variants_cannot_be_fetched(registry, monkeypatch):
    with registry.writing("owner/toy"):
        registry.set_ref("owner/toy", "v1", registry.add_snapshot("owner/toy", {})[0])
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(registry.root))
    with pytest.raises(NoVariantError, match="owner/toy has no build variant at"):
        loading.install_kernel_all_variants("owner/toy", version=1)
