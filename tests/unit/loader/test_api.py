# SPDX-License-Identifier: Apache-2.0
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.kernels import lock
from support.variants import contents

import kernforge
from kernforge.errors import (
    AbsentError,
    IntegrityError,
    NoVariantError,
    RegistryError,
    RequestError,
    TrustError,
    UsageError,
)
from kernforge.publish.api import publish
from kernforge.registry.api import open_registry
from kernforge.registry.hub import HubEndpoint, HubRegistry
from kernforge.system.environment import Environment

REPO = "owner/toy"
pytestmark = pytest.mark.usefixtures("machine")


def test_published_kernel_loads_by_every_name(registry, build):
    old = publish(build(files={"__init__.py": "WHICH = 'old'"}), registry, REPO, "1.0.0")
    new = publish(build(files={"__init__.py": "WHICH = 'new'"}), registry, REPO, "1.3.0")
    for asked, which in [
        ({"version": 1}, "new"),
        ({"version": "~=1.2"}, "new"),
        ({"version": "1.0.0"}, "old"),
        ({"version": "<1.3"}, "old"),
        ({"revision": old.commit}, "old"),
        ({"revision": new.commit[:9]}, "new"),
        ({"revision": "v1.0.0"}, "old"),
        ({"version": 1, "registry": registry}, "new"),
        ({"version": 1, "registry": registry.url}, "new"),
        ({"version": 1, "registry": registry.root}, "new"),
        ({"version": 1, "backend": "cpu", "trust_remote_code": True, "user_agent": "x"}, "new"),
    ]:
        assert which == kernforge.get_kernel(REPO, **asked).WHICH, asked


def test_new_version_loads_in_a_running_process(registry, build):
    publish(build(files={"__init__.py": "WHICH = 1"}), registry, REPO)
    assert kernforge.get_kernel(REPO, version=1).WHICH == 1
    publish(build(files={"__init__.py": "WHICH = 2"}), registry, REPO)
    assert kernforge.get_kernel(REPO, version=1).WHICH == 2


@pytest.mark.parametrize("asked", [{}, {"version": 1, "revision": "main"}])
def test_exactly_one_of_version_and_revision_is_needed(asked):
    for ask in (kernforge.get_kernel, kernforge.has_kernel, kernforge.get_kernel_variants):
        with pytest.raises(UsageError, match="must be specified"):
            ask(REPO, **asked)


@pytest.mark.parametrize(
    ("repo_id", "asked", "words"),
    [
        ("owner/none", {"version": 1}, "has no kernel 'owner/none'"),
        (REPO, {"version": 7}, "has no version 7 in registry"),
        (REPO, {"version": "~=1.5"}, "has no version ~=1.5"),
        (REPO, {"revision": "dev"}, "has no revision 'dev'"),
    ],
)
def test_unpublished_version_error_lists_the_published(registry, build, repo_id, asked, words):
    publish(build(), registry, REPO)
    with pytest.raises(RegistryError) as caught:
        kernforge.get_kernel(repo_id, **asked)
    assert words in caught.value.message
    if repo_id == REPO:
        assert caught.value.hint == "major versions there: 1; tags: v1.0.0"
    assert kernforge.has_kernel(repo_id, **asked) is False


def test_no_fitting_variant_error_has_trace_and_advice(registry, build):
    publish(build(variant="torch-cuda", backend="cuda"), registry, REPO)
    with pytest.raises(NoVariantError) as caught:
        kernforge.get_kernel(REPO, version=1)
    assert "torch-cuda: is for cuda, kernels are wanted for cpu" in caught.value.message
    assert caught.value.hint == "build it for cpu on x86_64-linux"
    assert not kernforge.has_kernel(REPO, version=1)
    (decision,) = kernforge.get_kernel_variants(REPO, version=1)
    assert not decision.accepted


def load_published():
    return kernforge.get_kernel(REPO, version=1)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    # In a registry the file is a link to a blob that others share.
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda v: flip(v / "_ops.py"), "changed: _ops.py"),
        (lambda v: (v / "_ops.py").unlink(), "missing: _ops.py"),
        (lambda v: (v / "extra.py").write_text(""), "extra: extra.py"),
        (lambda v: (v / "os.abi3.so").write_bytes(b"x"), "extra: os.abi3.so"),
        (lambda v: flip((v / "__init__.py").resolve()), "changed: __init__.py"),
        (lambda v: (v / "__init__.py").unlink(), "missing: __init__.py"),
    ],
)
@pytest.mark.parametrize("where", ["registry", "local", "override"])
def test_tampering_is_refused_before_anything_runs(build, damage, words, where, monkeypatch):
    ran: list[int] = []
    registry = open_registry(Environment.read().kernforge_registry)
    monkeypatch.setattr(sys, "ran", ran, raising=False)
    package = {"__init__.py": "import sys\nsys.ran.append(1)\n", "_ops.py": "name = 1\n"}
    directory = build(files=package)
    commit = publish(directory, registry, REPO).commit
    path = directory / "torch-cpu"
    if where == "registry":
        path = registry.fetch(REPO, commit, "torch-cpu")
    damage(path)
    if where == "override":
        monkeypatch.setenv("LOCAL_KERNELS", f"{REPO}={directory}")
    with pytest.raises(IntegrityError) as caught:
        kernforge.get_local_kernel(directory) if where == "local" else load_published()
    assert words in caught.value.message
    assert not ran


def test_link_out_of_the_registry_is_refused(registry, build, tmp_path):
    commit = publish(build(), registry, REPO).commit
    link = registry.fetch(REPO, commit, "torch-cpu") / "_ops.py"
    (tmp_path / "same.py").write_bytes(link.read_bytes())
    link.unlink()
    link.symlink_to(tmp_path / "same.py")
    with pytest.raises(IntegrityError, match=r"_ops\.py .* leaves"):
        kernforge.get_kernel(REPO, version=1)


def test_tampered_dependency_stops_the_load(registry, build):
    base = publish(build(name="base"), registry, "owner/base")
    publish(build(depends={"owner/base": 1}), registry, REPO)
    flip(registry.fetch("owner/base", base.commit, "torch-cpu") / "_ops.py")
    before = set(sys.modules)
    with pytest.raises(IntegrityError, match=r"owner--base.*\n.*changed: _ops\.py"):
        kernforge.get_kernel(REPO, version=1)
    assert not [name for name in set(sys.modules) - before if name.startswith("_")]
    assert kernforge.has_kernel(REPO, version=1)
    publish(build(depends={"owner/absent": 1}), registry, REPO)
    assert not kernforge.has_kernel(REPO, version=1)


def test_racing_threads_import_once(registry, build, monkeypatch):
    times = []
    monkeypatch.setattr(sys, "times", times, raising=False)
    package = {"__init__.py": "import sys, time\nsys.times.append(1)\ntime.sleep(0.05)\nDONE = 1\n"}
    publish(build(files=package), registry, REPO)
    gate = threading.Barrier(8)

    def get(_):
        gate.wait()
        return kernforge.get_kernel(REPO, version=1)

    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(get, range(8)))
    assert len(set(map(id, modules))) == len(times) == 1
    assert modules[0].DONE


@pytest.mark.parametrize("call", [kernforge.get_locked_kernel, kernforge.load_kernel])
def test_lock_overrides_newer_versions(put, tmp_path, call, monkeypatch):
    name = call.__name__
    base = put("owner/base", "1.0.0", name=f"base-{name[0]}", files={"__init__.py": "V = 'old'"})
    package = {
        "__init__.py": "import kernforge\nbase = kernforge.get_kernel_dep('owner/base')\n"
        "V = 'old'\n"
    }
    old = put(REPO, "1.0.0", name=f"toy-{name[0]}", depends={"owner/base": 1}, files=package)
    for repo_id in ("owner/base", REPO):
        new = {"__init__.py": "V = 'new'\nbase = None\n"}
        put(repo_id, "1.1.0", name=f"new-{name[0]}", files=new)
    path = lock(tmp_path / "kernels.lock", (REPO, 1, old), ("owner/base", 1, base))
    monkeypatch.setenv("LOCAL_KERNELS", f"{REPO}={tmp_path}")
    kernel = call(REPO, lockfile=path)
    assert (kernel.V, kernel.base.V) == ("old", "old")
    monkeypatch.delenv("LOCAL_KERNELS")
    assert kernforge.get_kernel(REPO, version=1).V == "new"
    with pytest.raises(RequestError, match=r"owner/base \(version 1\) is not locked in"):
        call(REPO, lockfile=lock(tmp_path / "other.lock", (REPO, 1, old)))


def test_absent_locked_commit_is_an_error(put, tmp_path):
    put(REPO)
    path = lock(tmp_path / "kernels.lock", (REPO, 1, "a" * 40))
    with pytest.raises(RegistryError, match=r"is locked to commit a{40}, which registry") as caught:
        kernforge.load_kernel(REPO, lockfile=path)
    assert "kernforge get" in caught.value.hint
    with pytest.raises(RequestError, match="there is no file"):
        kernforge.load_kernel(REPO, lockfile=tmp_path / "none")
    with pytest.raises(
        RequestError, match=r"was installed without kernels\.lock|belongs to no module"
    ):
        kernforge.load_kernel(REPO)


def test_install_verifies_and_imports_nothing(put, registry):
    put("owner/base", files={"__init__.py": "raise OSError"})
    commit = put(REPO, depends={"owner/base": 1}, files={"__init__.py": "raise OSError"})
    path = kernforge.install_kernel(REPO, version=1, local_files_only=True)
    assert path == registry.fetch(REPO, commit, "torch-universal")
    base = registry.fetch("owner/base", registry.ref("owner/base", "v1"), "torch-universal")
    (base / "more.py").touch()
    with pytest.raises(IntegrityError, match=r"extra: more\.py"):
        kernforge.install_kernel(REPO, version=1)


@pytest.fixture
def publish_by_hand(hub, tmp_path, write_variant):
    """Put a kernel that can be loaded on the hub, without our publisher."""

    def put(repo_id, text, **fields):
        name = repo_id.partition("/")[2]
        variant = write_variant(
            tmp_path / f"{name}-{len(hub.requests)}", name=name, files={"__init__.py": text},
            unique=f"{len(text):07x}", **fields
        )  # fmt: skip
        return hub.add(repo_id, "v1", contents(variant))

    return put


def test_user_agent_of_the_caller_is_sent(usual_hub, publish_by_hand):
    publish_by_hand("famous/teller", "WHO = 'teller'")
    usual_hub.publishers.add("famous")
    kernforge.install_kernel("famous/teller", version=1, user_agent={"app": "7"})
    assert sum("app/7" in text for text in usual_hub.user_agents) > 3


def test_hub_kernel_of_a_trusted_publisher_loads(usual_hub, publish_by_hand):
    publish_by_hand("owner/one", "WHO = 'one'")
    with pytest.raises(TrustError):
        kernforge.get_kernel("owner/one", version=1)
    assert kernforge.get_kernel("owner/one", version=1, trust_remote_code=True).WHO == "one"
    usual_hub.publishers.add("famous")
    publish_by_hand("famous/two", "WHO = 'two'")
    assert kernforge.get_kernel("famous/two", version=1).WHO == "two"
    usual_hub.counted()
    assert kernforge.get_kernel("famous/two", version=1).WHO == "two"
    assert usual_hub.counted() == {}


def test_absent_download_names_the_offline_hub(registry, build):
    publish(build(variant="torch-cuda", backend="cuda"), registry, REPO)
    hub = HubRegistry(HubEndpoint(url="https://hub.example", cache=registry.root)).offline()
    for repo_id, version, kind in [
        ("owner/none", 1, AbsentError),
        (REPO, 2, AbsentError),
        (REPO, 1, NoVariantError),
    ]:
        with pytest.raises(kind) as error:
            kernforge.get_kernel(repo_id, version=version, registry=hub)
        assert error.value.hint.startswith("https://hub.example is offline: download it first")
