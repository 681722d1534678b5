# SPDX-License-Identifier: Apache-2.0
"""OCI registries: requests of a load, logins, and registries that lie."""

import json
import os
import shutil
import subprocess

import pytest
from support import bad_server
from support.oci_registries import BASIC, BUNDLE, memory_registry, requests_made, send, write_login
from support.registries import commit_of

from kernforge.artifact.metadata import SIGNATURE
from kernforge.errors import IntegrityError, NetworkError, RegistryError
from kernforge.publish.api import publish
from kernforge.registry.api import _server, open_registry
from kernforge.registry.oci import OciTransport
from kernforge.system import logins
from kernforge.system.environment import Environment
from kernforge.system.logins import find_login

REPO, CPU = "acme/toy", "torch-cpu"
MANIFESTS = f"/v2/{REPO}/manifests"
LARGE = {"__init__.py": "ANSWER = 42\n", "toy.so": "machine code" * 200_000}


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A registry in memory."""
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with memory_registry() as server:
        yield server


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A function that opens a registry as a machine does that has none of its files."""
    homes = iter(range(100))

    def open_fresh(location):
        monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / f"home{next(homes)}"))
        _server.cache_clear()
        return open_registry(location)

    return open_fresh


def load(registry):
    commit = commit_of(registry, REPO, 1)
    assert registry.metadata(REPO, commit, CPU)
    return registry.fetch(REPO, commit, CPU)


@pytest.mark.parametrize(("tokens", "most"), [(False, 3), (True, 5)])
def test_cold_load_takes_three_requests_or_five(oci_registry, build, fresh, tokens, most):
    location = oci_registry(tokens=tokens)
    result = publish(build(files=LARGE), open_registry(location), REPO, card="# toy")
    assert result.url == f"{location}/{REPO}:v1.0.0"
    registry = fresh(location)
    with requests_made() as made:
        path = load(registry)
    assert len(made) == most, made
    assert (path / "toy.so").read_text() == LARGE["toy.so"]
    _server.cache_clear()
    with requests_made() as made:
        open_registry(location).fetch(REPO, result.commit, CPU)
    assert made == []
    assert registry.repo_ids() == (REPO,)


# -- logins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["reg:5000", "https://reg:5000", "https://reg:5000/v1/"])
def test_login_is_found_as_docker_writes_it(tmp_path, key):
    paths = (tmp_path / "absent.json", write_login(tmp_path / "config.json", key))
    assert find_login(paths, "reg:5000") == ("ann", "se:cret")
    assert find_login(paths, "reg:5001") is None


@pytest.mark.parametrize("variables", [{"XDG_RUNTIME_DIR": "{}/run"}, {}])
def test_login_of_podman_is_found_with_and_without_a_session(tmp_path, monkeypatch, variables):
    monkeypatch.setattr(logins, "_RUN", str(tmp_path / "containers"))
    place = "run/containers" if variables else f"containers/{os.geteuid()}"
    (tmp_path / place).mkdir(parents=True)
    write_login(tmp_path / place / "auth.json", "reg:5000")
    named = {name: text.format(tmp_path) for name, text in variables.items()}
    files = logins.login_files(Environment({**named, "HOME": str(tmp_path)}))
    assert find_login(files, "reg:5000") == ("ann", "se:cret")


HELPER = """#!/bin/sh
read host
case $1-$host in
  get-reg) echo '{"ServerURL": "reg", "Username": "ann", "Secret": "from-helper"}' ;;
  get-broken) echo "the key ring is locked"; exit 1 ;;
  *) echo "credentials not found in native keychain"; exit 1 ;;
esac
"""


def test_credential_helper_gives_the_login(tmp_path, monkeypatch):
    program = tmp_path / "bin/docker-credential-test"
    program.parent.mkdir()
    program.write_text(HELPER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    def ask(host, **config):
        return find_login([write_login(tmp_path / "c.json", host, {}, **config)], host)

    assert ask("reg", credsStore="test") == ("ann", "from-helper")
    assert ask("reg", credHelpers={"reg": "test"}) == ("ann", "from-helper")
    assert ask("other", credsStore="test") is None
    with pytest.raises(RegistryError, match="the key ring is locked"):
        ask("broken", credsStore="test")
    with pytest.raises(RegistryError, match="is not the name of a program"):
        ask("reg", credsStore="x/../../evil")
    with pytest.raises(RegistryError, match=r"c\.json gives no login for reg"):
        ask("reg", credHelpers=[])


def test_identity_token_is_exchanged_and_others_are_refused(oci_registry, build, tmp_path, fresh):
    location = oci_registry(tokens=True)
    host, path = location.split("/")[2], tmp_path / "docker/config.json"
    write_login(path, host, {"identitytoken": "refresh-me"})
    publish(build(), open_registry(location), REPO)
    assert load(fresh(location))
    for entry in ({}, {"auth": "YW5uOndyb25n"}):
        write_login(path, host, entry)
        with pytest.raises(RegistryError, match="refuses a token for team") as refused:
            fresh(location).refs(REPO)
        assert f"docker login {host}" in refused.value.hint


# -- registries that lie ---------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["manifests", "blobs"])
def test_other_bytes_are_refused(served, build, fresh, place):
    commit = publish(build(files=LARGE), open_registry(served.location), REPO).commit
    for path in served.stored:
        if f"/{place}/sha256:" in path:
            served.stored[path] = b" " * 3_000_000
    registry = fresh(served.location)
    with pytest.raises(IntegrityError, match=r"other bytes|is not what .* lists"):
        registry.fetch(REPO, commit, CPU)
    assert not list(registry.root.rglob("toy.so"))


def listing(path=f"build/{CPU}/x", size=1, offset=0):
    rows = {path: [size, "ab" * 32, "cd" * 32, offset]}
    return {"annotations": {"org.kernforge.files": json.dumps({"schema": 1, "files": rows})}}


@pytest.mark.parametrize(
    "manifest",
    [
        *({}, [[]], {"annotations": {}}, {"annotations": {"org.kernforge.files": 1}}),
        *(listing("../../evil"), listing(size=1 << 60), listing(offset=-1)),
    ],
)
def test_malformed_manifests_are_refused(served, fresh, manifest):
    served.stored[f"{MANIFESTS}/v1"] = json.dumps(manifest).encode()
    with pytest.raises(RegistryError, match="is not that of a registry of kernels"):
        load(fresh(served.location))


def test_no_login_goes_to_another_host(served, build, fresh, tmp_path):
    """Neither by a redirect nor by the place for an upload, nor to the realm that it names."""
    write_login(tmp_path / "docker/config.json", served.host)
    with memory_registry() as other:

        def demand(handler):
            realm = f'Bearer realm="{other.url}/token",service="x"'
            return handler.command == "GET" and send(handler, 401, WWW_Authenticate=realm)

        def elsewhere(handler):
            if handler.headers.get("Authorization") != f"Basic {BASIC}":
                return send(handler, 401, WWW_Authenticate='Basic realm="here"')
            place = f"{other.url}{handler.path}"
            if handler.command == "POST":
                return send(handler, 202, Location=f"{place}one")
            return "Range" in handler.headers and send(handler, 307, Location=place)

        other.before, served.before = demand, elsewhere
        registry = open_registry(served.location)
        commit = publish(build(files=LARGE), registry, REPO).commit
        with pytest.raises(RegistryError, match="HTTP 401"):
            fresh(served.location).metadata(REPO, commit, CPU)
        assert not any("token" in path for path in other.requests)
        assert set(other.tokens) == {""}
        assert other.stored


def test_no_login_goes_to_a_realm_without_encryption(tmp_path, monkeypatch):
    certificate = bad_server.self_signed(tmp_path / "server.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    realm = 'Bearer realm="http://127.0.0.1:1/token",service="x"'
    with bad_server.serve(
        lambda handler: send(handler, 401, WWW_Authenticate=realm), certificate=certificate
    ) as server:
        host = server.url.removeprefix("https://")
        logins = (write_login(tmp_path / "config.json", host),)
        with pytest.raises(NetworkError, match="is not encrypted"):
            OciTransport(f"oci://{host}", logins).refs(REPO)


def test_tags_come_in_pages(served, build, fresh):
    commit = publish(build(), open_registry(served.location), REPO).commit
    following = f'</v2/{REPO}/tags/list?last=v1.0.0>; rel="next"'

    def pages(handler):
        last = "last=" in handler.path
        tags = ["v1", "sha256-ab"] if last else ["main", "v1.0.0"]
        body = json.dumps({"tags": tags}).encode()
        link = {} if last else {"Link": following}
        return "/tags/list" in handler.path and send(handler, 200, body, **link)

    served.before = pages
    assert fresh(served.location).refs(REPO) == dict.fromkeys(("main", "v1", "v1.0.0"), commit)
    following = '<file:///etc/passwd>; rel="next"'
    with pytest.raises(NetworkError, match="which is not encrypted"):
        fresh(served.location).refs(REPO)


def test_retried_tag_overwrites_no_other_version(served, build):
    registry, stored, tag = open_registry(served.location), served.stored, f"{MANIFESTS}/v1.0.0"
    publish(build(files={"__init__.py": "ANSWER = 1\n"}), registry, REPO, branch="other")

    def overtake(handler):
        if (handler.command, handler.path) != ("PUT", tag) or tag in stored:
            return False
        stored[tag] = stored[f"{MANIFESTS}/other"]
        return send(handler, 503)

    served.before = overtake
    result = publish(build(files={"__init__.py": "ANSWER = 2\n"}), registry, REPO)
    assert result.version == "1.0.1"
    assert stored[tag] == stored[f"{MANIFESTS}/other"]
    assert commit_of(registry, REPO, 1) == registry.refs(REPO)["main"] == result.commit


# -- signatures and copies -------------------------------------------------------------------------


@pytest.fixture
def signed(build):
    directory = build(files=LARGE)
    (directory / CPU / SIGNATURE).write_bytes(BUNDLE)
    return directory


def test_signature_is_a_referrer(served, signed, fresh):
    commit = publish(signed, open_registry(served.location), REPO).commit
    assert (load(fresh(served.location)) / SIGNATURE).read_bytes() == BUNDLE
    referrers = [json.loads(data) for data in served.stored.values() if b'"subject"' in data]
    assert {each["subject"]["digest"] for each in referrers} == {f"sha256:{commit}"}
    assert referrers[0]["artifactType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert not any("/sha256-" in path for path in served.stored)


def test_referrers_have_a_tag_where_the_registry_knows_none(oci_registry, signed):
    registry = open_registry(oci_registry())
    commit = publish(signed, registry, REPO).commit
    fallback = json.loads(registry.transport.manifest(REPO, f"sha256-{commit}"))
    (referrer,) = fallback["manifests"]
    assert referrer["annotations"]["org.kernforge.signs"] == f"build/{CPU}/metadata.json"
    assert set(registry.refs(REPO)) == {"main", "v1", "v1.0.0"}


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="needs Debian's skopeo")
def test_skopeo_copies_a_release_with_its_commit(oci_registry, signed, fresh):
    location = oci_registry()
    commit = publish(signed, open_registry(location), REPO, card="# toy").commit
    host = location.split("/")[2]
    source, target = (f"docker://{host}/{p}/{REPO}:v1" for p in ("team/kernels", "mirror"))
    unencrypted = ("--src-tls-verify=false", "--dest-tls-verify=false")
    subprocess.run(["skopeo", "copy", *unencrypted, source, target], check=True)
    registry = fresh(f"oci+http://{host}/mirror")
    assert commit_of(registry, REPO, 1) == commit
    assert (load(registry) / SIGNATURE).is_file()
