# SPDX-License-Identifier: Apache-2.0
"""The promises of the trust policy, at every door that loads, copies or verifies a kernel.

Who can write to a registry, but has no key, moves references, puts one signed kernel in the place
of another, removes a signature, changes a file or writes a redirect. A table of doors by promises;
each cell asks the door for an honest kernel and for the attacker's.
"""

import itertools
import sys

import pytest
from support import processes
from support.commands import call
from support.kernels import lock

import kernforge
from kernforge.compat.modules import by_position
from kernforge.errors import IntegrityError, KernforgeError, RegistryError, TrustError
from kernforge.registry.api import open_registry
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system import files
from kernforge.system.digest import sha256
from kernforge.trust import signing

POLICY = """
[signer.acme]
public-key = "{key}"

[[rule]]
repo = "acme/*"
admit = "signed"
signers = "acme"

[[rule]]
registry = "**/local/**"
admit = "signed"
signers = "acme"

[[rule]]
repo = "bad/*"
admit = "never"

[[rule]]
repo = "asked/*"
admit = "asked"

[[rule]]
admit = "always"
"""
PACKAGE = {
    "__init__.py": "from . import layers\n\ndef which(x):\n    return 'kernel'\n",
    "layers.py": "from torch import nn\n\nclass Layer(nn.Module):\n"
    "    def forward(self, x):\n        return 'kernel'\n",
}
REPO = "acme/toy"
UNIVERSAL = "torch-universal"
numbers = itertools.count()


class Place:
    """A site with a policy and a registry, and the attacker's hands."""

    def __init__(self, root, monkeypatch, write_variant):
        self.root, self.monkeypatch, self.write_variant = root, monkeypatch, write_variant
        self.keys = {name: signing.Key() for name in ("acme", "stranger")}
        self.policy = root / "trust.toml"
        self.policy.write_text(POLICY.format(key=self.keys["acme"].public_text))
        self.registry = DirectoryRegistry(root / "registry")
        for name, value in {
            "KERNFORGE_HOME": root / "home",
            "KERNFORGE_TRUST": self.policy,
            "KERNFORGE_REGISTRY": self.registry.root,
            "XDG_DATA_HOME": root / "data",
        }.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.delenv("LOCAL_KERNELS", raising=False)

    def variant(self, name="toy", version=1, *, key="acme", where="builds"):
        number = next(numbers)
        path = self.write_variant(
            self.root / where / str(number),
            variant=UNIVERSAL,
            name=name,
            version=version,
            unique=f"door{number}",
            files=PACKAGE,
        )
        if key:
            signing.sign([path], self.keys[key].sign)
        return path

    def publish(self, repo_id, path, refs, more=None):
        tree = {}
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            digest = files.sha256_file(file)
            self.registry.add_blob(repo_id, digest, file)
            tree[f"build/{path.name}/{file.relative_to(path).as_posix()}"] = digest
        for name, text in (more or {}).items():
            digest = sha256(text.encode())
            self.registry.add_blob(repo_id, digest, text.encode())
            tree[name] = digest
        commit = self.registry.add_snapshot(repo_id, tree)
        for ref in refs:
            self.registry.set_ref(repo_id, ref, commit)
        return commit

    def lock(self, version):
        commit = open_registry(str(self.registry.root)).ref(REPO, f"v{version}")
        return lock(self.root / "project" / "kernels.lock", (REPO, version, commit)).parent


@pytest.fixture
def place(tmp_path, monkeypatch, write_variant):
    return Place(tmp_path, monkeypatch, write_variant)


def refs(version):
    return ["main", f"v{version}", f"v{version}.0.0"]


# -- doors: each asks for a major version, and gives the exit code of what it raised -------------


def kernelize(_place, version):
    from torch import nn  # noqa: PLC0415 - slow

    @kernforge.use_kernel_forward_from_hub("Door")
    class Door(nn.Module):
        def forward(self, x):
            return "its own"

    layer = kernforge.LayerRepository(REPO, layer_name="Layer", version=version)
    with kernforge.use_kernel_mapping({"Door": {"cpu": layer}}, inherit_mapping=False):
        model = kernforge.kernelize(
            Door(), mode=kernforge.Mode.INFERENCE, device="cpu", use_fallback=True
        )
    assert model(None) == "kernel"


PROGRAM = f"""
import sys, kernels
try:
    kernels.get_kernel({REPO!r}, version=int(sys.argv[1]), backend="cpu")
except Exception as error:
    print(error)
    sys.exit(error.exit_code)
"""


def run_as_kernels(_place, version):
    python = [sys.executable, "-c", PROGRAM, str(version)]
    command = [sys.executable, "-m", "kernforge", "run", "--as-kernels", "--", *python]
    return processes.start(command).wait()


def locked(place, version):
    kernforge.get_locked_kernel(REPO, lockfile=place.lock(version) / "kernels.lock", backend="cpu")


def layer(kind, **named):
    return lambda _p, v: kind(REPO, version=v, **named).load()


def get(**form):
    return lambda _p, v: kernforge.get_kernel(
        REPO,
        backend="cpu",
        **{k: f.format(v) if isinstance(f, str) else f for k, f in form.items()},
    )


DOORS = {
    "get_kernel": lambda _p, v: kernforge.get_kernel(REPO, version=v, backend="cpu"),
    "get_kernel of v1": get(version="v{}"),
    "get_kernel of ~=1.0": get(version="~={}.0"),
    "get_kernel of 1.0": get(version="{}.0"),
    "get_kernel of 1.0.0": get(version="{}.0.0"),
    "get_kernel of branch v1": get(revision="v{}"),
    "get_kernel of tag v1.0.0": get(revision="v{}.0.0"),
    "get_kernel(build=True)": get(version="{}", build=True),
    "install_kernel": lambda _p, v: kernforge.install_kernel(REPO, version=v, backend="cpu"),
    "has_kernel": lambda _p, v: kernforge.has_kernel(REPO, version=v, backend="cpu"),
    "get_locked_kernel": locked,
    "LayerRepository": layer(kernforge.LayerRepository, layer_name="Layer"),
    "FuncRepository": layer(kernforge.FuncRepository, func_name="which"),
    "kernelize": kernelize,
    "kernels.get_kernel": lambda _p, v: by_position(kernforge.get_kernel)(REPO, None, v, "cpu"),
    "run": run_as_kernels,
    "get": lambda _p, v: call("get", REPO, "--version", v, "--backend", "cpu"),
    "download": lambda p, v: call(
        "get", REPO, "--version", v, "--variant", "*", "--to", p.root / "to"
    ),
    "download PROJECT": lambda p, v: call(
        "get", p.lock(v), "--variant", "*", "--to", p.root / "to"
    ),
    "verify": lambda _p, v: call("verify", REPO, "--version", v),
    "wheel": lambda p, v: call("wheel", REPO, "--version", v, "--out", p.root / "dist"),
}  # fmt: skip


def code(door, place, version):
    """The exit code of a door: 0 where it gives the kernel."""
    try:
        given = DOORS[door](place, version)
    except KernforgeError as error:
        return error.exit_code
    assert given is not False
    return given if isinstance(given, int) and not isinstance(given, bool) else 0


# -- promises: each makes the registry lie about version 2 ---------------------------------------


def older_version(place):
    place.publish(REPO, place.variant(version=1), refs(1) + refs(2))


def another_kernel(place):
    place.publish(REPO, place.variant("danger", 2), refs(2))


def no_signature(place):
    place.publish(REPO, place.variant(version=2, key=None), refs(2))


def another_signer(place):
    place.publish(REPO, place.variant(version=2, key="stranger"), refs(2))


def revoked_document(place):
    path = place.variant(version=2)
    document = sha256((path / "metadata.json").read_bytes())
    rule = f'[[rule]]\ndocument = "{document}"\nadmit = "never"\n'
    place.policy.write_text(rule + place.policy.read_text())
    place.publish(REPO, path, refs(2))


def changed_file(place):
    commit = place.publish(REPO, place.variant(version=2), refs(2))
    blob = (place.registry.fetch(REPO, commit, UNIVERSAL) / "layers.py").resolve()
    blob.write_text(f"{blob.read_text()}\nEVIL = 1\n")


def redirect(place):
    place.publish("acme/danger", place.variant("danger", 2), refs(2))
    status = {"kernel-status.toml": 'kind = "redirect"\ndestination = "acme/danger"\n'}
    place.publish(REPO, place.variant(version=2), refs(2), status)


TRUST, INTEGRITY, REGISTRY = TrustError.exit_code, IntegrityError.exit_code, RegistryError.exit_code
PROMISES = {
    older_version: {TRUST},
    another_kernel: {TRUST},
    no_signature: {TRUST},
    another_signer: {TRUST},
    revoked_document: {TRUST},
    changed_file: {INTEGRITY},
    redirect: {TRUST, REGISTRY},
}
# What a door does not promise, and says so.
NOT_PROMISED = {
    ("has_kernel", changed_file),  # it fetches no files
    ("get_locked_kernel", redirect),  # a lock names a commit, and follows nothing
}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("door", DOORS)
def test_attack_is_refused_at_every_door(place, door, promise):
    promise(place)
    expected = {0} if (door, promise) in NOT_PROMISED else PROMISES[promise]
    assert code(door, place, 2) in expected


@pytest.mark.parametrize("door", DOORS)
def test_honest_kernel_passes_every_door(place, door):
    place.publish(REPO, place.variant(version=1), refs(1))
    place.publish(REPO, place.variant(version=2), refs(2))
    assert code(door, place, 2) == 0


@pytest.mark.parametrize("door", DOORS)
def test_rollback_is_refused_offline_at_every_door(place, door, hub):
    """Nothing is asked of the hub; what is in the cache is held against the same policy."""
    cache = place.root / "cache"
    place.registry = DirectoryRegistry(cache)
    older_version(place)
    for name, value in {
        "KERNFORGE_REGISTRY": "hf://",
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": "1",
        "KERNELS_CACHE": str(cache),
    }.items():
        place.monkeypatch.setenv(name, value)
    assert code(door, place, 1) == 0
    assert code(door, place, 2) == TRUST
    assert hub.requests == []


LOCAL = {
    "get_local_kernel": lambda path: kernforge.get_local_kernel(path, backend="cpu"),
    "LocalLayerRepository": lambda path: kernforge.LocalLayerRepository(
        path, layer_name="Layer"
    ).load(),
    "LOCAL_KERNELS": lambda _path: kernforge.get_kernel(REPO, version=1, backend="cpu"),
    "verify": lambda path: call("verify", path),
}


def local(place, door, path):
    place.monkeypatch.setenv("LOCAL_KERNELS", f"{REPO}={path}")
    try:
        given = LOCAL[door](path)
    except KernforgeError as error:
        return error.exit_code
    return given if isinstance(given, int) else 0


@pytest.mark.parametrize("door", LOCAL)
def test_directory_rules_apply_at_local_doors(place, door):
    """A local directory is the user's own word for a kernel; rules for directories hold for it."""
    assert local(place, door, place.variant(where="local")) == 0
    for key in (None, "stranger"):
        assert local(place, door, place.variant(where="local", key=key)) == TRUST
    changed = place.variant(where="local")
    (changed / "layers.py").write_text("EVIL = 1\n")
    assert local(place, door, changed) == INTEGRITY


def test_repo_rules_do_not_apply_to_directories(place):
    assert local(place, "LOCAL_KERNELS", place.variant(where="builds", key=None)) == 0


@pytest.mark.parametrize("old", ["acme/toy", "bad/toy", "asked/toy"])
def test_redirect_does_not_evade_the_rule_of_the_old_name(place, old):
    evil = place.variant(key=None)
    place.publish("evil/toy", evil, refs(1))
    status = {"kernel-status.toml": 'kind = "redirect"\ndestination = "evil/toy"\n'}
    place.publish(old, evil, refs(1), status)
    kernforge.install_kernel("evil/toy", version=1)  # its own rule admits it
    with pytest.raises(TrustError):
        kernforge.get_kernel(old, version=1)


def test_allowed_redirect_is_followed(place):
    place.publish("new/toy", place.variant(key=None), refs(1))
    status = {"kernel-status.toml": 'kind = "redirect"\ndestination = "new/toy"\n'}
    place.publish("asked/toy", place.variant(key=None), refs(1), status)
    for allowed in (True, ["asked/toy"], ("asked/toy",), {"asked/toy"}):
        assert kernforge.install_kernel("asked/toy", version=1, trust_remote_code=allowed)


@pytest.mark.parametrize("promise", [older_version, no_signature, another_signer, another_kernel])
def test_refusal_never_advises_to_drop_the_signature(place, promise):
    promise(place)
    with pytest.raises(TrustError) as refused:
        kernforge.get_kernel(REPO, version=2)
    assert "always" not in refused.value.hint
