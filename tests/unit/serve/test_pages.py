# SPDX-License-Identifier: Apache-2.0
"""The pages of a server: what they say, and what an untrusted kernel cannot make them do."""

import base64
import hashlib
import json
import re

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from support import policies
from support.kernels import CUDA_HOST
from support.pages import HOST, NAMES, Page, client, kernel
from support.served import publish
from support.signatures import IDENTITY, Sigstore
from support.variants import contents

from kernforge.artifact.version import Version2
from kernforge.loader.resolve import resolve
from kernforge.registry.directory import DirectoryRegistry
from kernforge.serve import card
from kernforge.trust.policy import ED25519_DER, fingerprint

REPO = "acme/scale"
FORM = {"torch": "2.12", "backend": "cu130", "gpu": "9.0", "platform": "x86_64-linux"}
ATTACKS = [
    "<script>alert(1)</script>",
    '<img src="https://evil.example/x" onerror="alert(1)">',
    "![x](https://evil.example/x.png)",
    "[x](javascript:alert(1)) [y](JaVaScRiPt&#58;alert(1)) [z](data:text/html,<script>)",
    "<iframe src=//evil.example></iframe><style>*{display:none}</style>",
    '[x](https://good.example "onmouseover=alert(1)")<a href="vbscript:x">y</a>',
    "# <svg onload=alert(1)>\n\n| <b onclick=x> |\n|:-:|\n| `</code><script>` |",
    "<!-- --><!--><script>x</script>-->",
    "[x]: https://good.example '\"><script>'\n\n[x] </main></section><form action=/search>",
]


@pytest.fixture(autouse=True)
def policy(monkeypatch, tmp_path):
    return policies.without_policies(monkeypatch, tmp_path)


@pytest.fixture
def registry(tmp_path):
    return DirectoryRegistry(tmp_path / "registry")


@pytest.fixture
def build(tmp_path):
    return tmp_path / "build"


def page(registry, path=f"/kernels/{REPO}", status=200, **query) -> Page:
    answer = client(registry).get(path, params=query)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)


def test_lists_have_versions_variants_and_backends(registry, build):
    publish(registry, "acme/older", kernel(build), "v1", "v1.0.0", "main")
    publish(registry, REPO, kernel(build), "v2", "v2.3.0", "main")
    home = page(registry, "/").text
    assert "acme/ older 1.0.0 7 variants" in home
    assert "acme/ scale 2.3.0 7 variants" in home
    found = page(registry, "/search", q="SCA").text
    assert "2.3.0 7 variants" in found
    assert "CPU CUDA" in found
    assert "older" not in found


def test_names_that_begin_with_the_text_are_first(registry):
    for name in ("a-norm", "norm", "z/norm"):
        publish(registry, name if "/" in name else f"acme/{name}", {"README.md": b""}, "v1.0.0")
    text = page(registry, "/search", q="norm").text
    assert text.index("acme/ norm") < text.index("z/ norm") < text.index("acme/ a-norm")


def test_kernel_has_sizes_signatures_of_functions_and_card(registry, build):
    files = {**kernel(build), "README.md": b"---\nlicense: x\n---\n# Scale\n\nIt *scales*."}
    publish(registry, REPO, files, "v1.0.0")
    text = page(registry).text
    assert "7 variants" in text
    assert re.search(r"torch 2\.12 1\d\d kB", text)
    assert "7.5 8.0 9.0 10.0 12.0+PTX" in text
    assert "scale (x, /, factor=1.0, *, out=None)" in text
    assert "ops.scale (x: Tensor, factor: float = 1.0, *, out: Tensor!? = None) -> Tensor" in text
    assert "It scales ." in text
    assert "license: x" not in text


@pytest.mark.parametrize(
    ("form", "host"),
    [
        (FORM, {}),
        ({**FORM, "torch": "2.11.1+cu130"}, {"torch": Version2(2, 11)}),
        ({**FORM, "torch": "2.10"}, {"torch": Version2(2, 10)}),
    ],
)
def test_the_form_answers_as_the_loader_does(registry, build, form, host):
    publish(registry, REPO, kernel(build), "v1.0.0")
    machine = CUDA_HOST.__class__(
        cpu="x86_64",
        os="linux",
        backend=CUDA_HOST.backend,
        cxx11=True,
        **{"torch": Version2(2, 12), **host},
    )
    resolution = resolve(NAMES, machine)
    text = page(registry, **form).text
    if resolution.best:
        assert f"It fits. This machine would load {resolution.best.name}" in text
    else:
        assert "Nothing fits: install torch 2.11" in text
    for decision in resolution.decisions:
        assert decision.reason in text


def test_a_build_without_code_for_the_gpu_does_not_fit(registry, build):
    publish(registry, REPO, kernel(build), "v1.0.0")
    text = page(registry, **{**FORM, "gpu": "7.0"}).text
    assert "torch212-cxx11-cu130-x86_64-linux would be refused: the build has device code" in text


@pytest.mark.parametrize("wrong", [{"torch": "new"}, {"backend": "<b>"}, {"platform": "x" * 999}])
def test_a_wrong_field_is_named(registry, build, wrong):
    publish(registry, REPO, kernel(build), "v1.0.0")
    assert "is not a" in page(registry, **{**FORM, **wrong}).text


def test_code_to_copy_names_the_version(registry, build):
    publish(registry, REPO, kernel(build), "v1.0.0")
    publish(registry, REPO, {**kernel(build), "more": b""}, "v1.1.0", "v1")
    newest = "".join(page(registry).code)
    assert newest.count("version=1,") == 2
    assert '"acme/scale" = 1\n' in newest
    assert f'registry="hf+{HOST}"' in newest
    older = "".join(page(registry, version="1.0.0").code)
    assert 'version="1.0.0"' in older
    assert 'revision="v1.0.0"' in older
    assert '"acme/scale" = "==1.0.0"' in older
    trusted = Page(client(registry, trusted=("acme",)).get(f"/kernels/{REPO}").text)
    assert "trust_remote_code" not in "".join(trusted.code)


@pytest.mark.parametrize("text", ATTACKS)
def test_attacks_are_shown_as_text(registry, build, text):
    files = kernel(
        build,
        "torch-cpu",
        source=f"https://good.example/{text.replace(' ', '')}",
        upstream=(f"x:{text.replace(' ', '')}",),
        files={"__init__.py": f"def f(a={text!r}):\n    pass\n"},
        ops=[text, f"f(Tensor x={text!r}) -> Tensor"],
    )
    path = "build/torch-cpu/metadata.json"
    files[path] = json.dumps({**json.loads(files[path]), "license": text}).encode()
    publish(registry, REPO, {**files, "README.md": text.encode()}, "v1.0.0")
    shown = page(registry, q=text, version="", torch=text, backend=text)
    tags = {tag for tag, _ in shown.elements}
    assert not tags & {"script", "iframe", "style", "svg", "object", "base"}
    forms = [attributes["action"] for tag, attributes in shown.elements if tag == "form"]
    assert forms == ["/search", f"/kernels/{REPO}", f"/kernels/{REPO}#builds"]
    for _, attributes in shown.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("href", "src"):
            link = attributes.get(name) or "/"
            assert link.startswith(
                ("/static/", "/") if name == "src" else ("/", "#", "https://good")
            )
    search = page(registry, "/search", q=text)
    assert not {tag for tag, _ in search.elements} & {"script", "iframe", "style", "svg"}


def test_a_card_is_readable_html():
    html = card.render(
        "# One\n### Three\n## Two\n\n|  | b |\n|--|--:|\n| c | d |\n\n"
        "[l](https://x.example) ![](y.png) [m](relative)\n\n<!-- gone -->\n\n<!-- open"
    )
    assert "<h3>One</h3>" in html
    assert "<h4>Three</h4>" in html
    assert "<h4>Two</h4>" in html
    assert '<th class="right" scope="col">b</th>' in html.replace(
        'scope="col" class="right"', 'class="right" scope="col"'
    )
    assert html.count("<th") == 2  # thead and one heading
    assert 'rel="nofollow noopener"' in html
    assert "relative" not in html
    assert "gone" not in html
    assert "&lt;!-- open" in html


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"{", "metadata.json is not JSON"),
        (b"[]", "the document is not an object"),
        (b'{"backend": {"type": "<b>"}, "name": "toy"}', "lacks 'id'"),
        (b" " * (2 << 20), "too many to be read here"),
        (None, "metadata.json is missing"),
    ],
)
def test_malformed_metadata_is_named_in_its_place(registry, build, document, problem):
    files = kernel(build)
    path = f"build/{NAMES[0]}/metadata.json"
    files[path] = document
    if document is None:
        del files[path]
    publish(registry, REPO, {**files, "build/strange name/x": b""}, "v1.0.0")
    text = page(registry, **FORM).text
    assert problem in text
    assert "its name is not that of a variant" in text
    assert "would load torch212-cxx11-cu130-x86_64-linux" in text


def test_a_commit_without_anything_has_a_page(registry):
    publish(registry, REPO, {"x": b""}, "dev")
    text = page(registry, **FORM).text
    assert "0 variants" in text
    assert "nothing is built for this kernel" in text


@pytest.mark.parametrize("ops", [[1], {}, "x", [["x"]], ["(" * 5000]])
def test_malformed_operators_are_no_error_of_the_page(registry, build, ops):
    publish(registry, REPO, kernel(build, ops=ops), "v1.0.0")
    page(registry)


def test_endless_names_of_modules_are_refused(registry, build):
    names = [f"m{number}" for number in range(12)]
    modules = {f"{name}.py": f"from . import {', '.join(names)}\n" for name in names}
    files = kernel(build, "torch-cpu", files={"__init__.py": modules["m0.py"], **modules})
    publish(registry, REPO, files, "v1.0.0")
    assert "more than 50,000 public names" in page(registry).text


def test_a_large_kernel_is_cut(registry, build):
    files = kernel(build, "torch-cpu")
    one = contents(build / "torch-cpu")
    for number in range(450):
        files |= {p.replace("torch-cpu", f"torch-b{number:03}"): d for p, d in one.items()}
    publish(registry, REPO, {**files, "README.md": b"word " * 100_000}, "v1.0.0")
    answer = client(registry).get(f"/kernels/{REPO}")
    assert "451 variants" in Page(answer.text).text
    assert "51 more are not shown" in answer.text
    assert len(answer.text) < 2_000_000


def test_unknown_kernels_and_versions_have_a_page(registry, build):
    publish(registry, REPO, kernel(build), "v1.0.0")
    assert "no such kernel" in page(registry, "/kernels/acme/other", 404).text
    assert "no such kernel" in page(registry, "/kernels/..%2f/x", 404).text
    assert "has no version 9" in page(registry, version="9", status=404).text


def test_private_kernels_are_unknown_without_their_token(registry, build, tmp_path):
    publish(registry, REPO, kernel(build), "v1.0.0")
    tokens = tmp_path / "tokens.toml"
    digest = hashlib.sha256(b"secret").hexdigest()
    tokens.write_text(f'[[token]]\nname = "ci"\nsha256 = "{digest}"\n')
    reader = client(registry, tokens=tokens)
    assert reader.get(f"/kernels/{REPO}", auth=("any", "secret")).status_code == 200
    for path in ("/", "/search?q=scal"):
        assert "scale" not in Page(reader.get(path).text).text
        assert "Sign in" in reader.get(path).text
    private, unknown = (reader.get(f"/kernels/{name}") for name in (REPO, "acme/nothing"))
    assert private.status_code == unknown.status_code == 404
    assert private.text == unknown.text
    assert "Basic" in reader.get("/login").headers["www-authenticate"]
    assert reader.get("/login", auth=("any", "secret")).url == f"{HOST}/"


SIGNED = '[signer.acme]\npublic-key = "{}"\n[[rule]]\nadmit = "signed"\nsigners = ["acme"]\n'


@pytest.mark.parametrize("state", ["unsigned", "claimed", "verified", "forged", "demanded"])
def test_a_signature_is_called_verified_by_policy_alone(registry, build, state):
    key = ed25519.Ed25519PrivateKey.generate()
    raw = key.public_key().public_bytes_raw()
    files = kernel(build, "torch-cpu", name="scale")
    document = files["build/torch-cpu/metadata.json"]
    signature = key.sign(document + b"x" * (state == "forged"))
    bundle = {
        "verificationMaterial": {"publicKey": {"hint": fingerprint(raw)}},
        "messageSignature": {"signature": base64.b64encode(signature).decode()},
    }
    if state not in {"unsigned", "demanded"}:
        files["build/torch-cpu/metadata.json.sigstore"] = json.dumps(bundle).encode()
    if state in {"verified", "forged", "demanded"}:
        policies.user(SIGNED.format(base64.b64encode(ED25519_DER + raw).decode()))
    publish(registry, REPO, files, "v1.0.0")
    text = page(registry).text
    assert ("this server verified the signature" in text) == (state == "verified")
    assert ("This server verified none" in text) == (state in {"unsigned", "claimed"})
    assert ("refused by the trust policy" in text) == (state in {"forged", "demanded"})
    assert ("1 of 1 variant" in text) == (state in {"claimed", "verified", "forged"})
    assert str(registry.root) not in text


@pytest.mark.parametrize(
    ("bundle", "named"),
    [
        (lambda document: Sigstore().sign(document), f"by {IDENTITY}"),
        (lambda _: b"{}", "by an identity that cannot be read here"),
        (lambda _: b"x" * (2 << 20), "unreadable"),
    ],
)
def test_an_identity_is_shown_as_a_claim(registry, build, bundle, named):
    files = kernel(build, "torch-cpu")
    path = "build/torch-cpu/metadata.json"
    publish(registry, REPO, {**files, f"{path}.sigstore": bundle(files[path])}, "v1.0.0")
    text = page(registry).text
    assert named in text
    assert "This server verified none" in text


def test_a_moved_kernel_says_where(registry):
    moved = b'kind = "redirect"\ndestination = "acme/new"\n'
    publish(registry, REPO, {"kernel-status.toml": moved}, "v1.0.0")
    publish(registry, "acme/odd", {"kernel-status.toml": b"<b>"}, "v1.0.0")
    assert "This kernel moved to acme/new" in page(registry).text
    assert "Its new name cannot be read" in page(registry, "/kernels/acme/odd").text


def test_pages_allow_nothing_from_elsewhere(registry):
    answer = client(registry).get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    for _, attributes in Page(answer.text).elements:
        if link := attributes.get("src") or attributes.get("href"):
            assert client(registry).get(link).status_code == 200 or link.startswith("#")


def test_the_address_of_a_request_is_not_code(registry, build):
    publish(registry, REPO, kernel(build, "torch-cpu"), "v1.0.0")
    answer = client(registry).get(f"/kernels/{REPO}", headers={"Host": 'x";import os#'})
    assert "import os" not in answer.text
    below = client(registry, url="https://x.example/hub").get(f"/hub/kernels/{REPO}")
    assert 'href="/hub/kernels/acme/scale' in below.text
    assert "hf+https://x.example/hub" in below.text


def test_a_damaged_kernel_leaves_the_others_in_lists(registry, build):
    publish(registry, REPO, kernel(build, "torch-cpu"), "v1.0.0", "main")
    publish(registry, "acme/odd", {"x": b""}, "v1.0.0", "main")
    (registry.link_root("acme/odd") / "refs/v1.0.0").write_text("nonsense")
    text = page(registry, "/").text
    assert "1.0.0 1 variant" in text
    assert "no version that can be read" in text
