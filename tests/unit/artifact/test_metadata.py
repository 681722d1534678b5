# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace

import pytest

from kernforge.artifact.metadata import Digest, GitState, KernelDepend, Metadata, Provenance
from kernforge.errors import IntegrityError

COMMIT = "d0610aa58db33b142c86b59598a2a1c730f52996"
WHOLE = Metadata(
    name="flash-attn",
    id="_flash_attn_cuda_d0610aa",
    version=2,
    license="Apache-2.0",
    upstream=("https://example.org/up.git",),
    source="git@example.org:owner/source",
    python_depends=("einops",),
    kernel_depends=(
        KernelDepend(repo_id="a/b", version=1),
        KernelDepend(repo_id="a/c", revision="main"),
    ),
    backend="cuda",
    archs=("7.5", "10.0", "9.0+PTX"),
    kernels_minver="0.17.0",
    digest=Digest(files={"b.py": "Yg==", "a.py": "YQ=="}),
    provenance=Provenance(
        builder_version="kernforge-0.1.0",
        builder=GitState(commit=COMMIT, dirty=False),
        kernel=GitState(commit=COMMIT, dirty=True),
        kernforge={"toolchain": "abc"},
    ),
)
LEAST = {
    "name": "toy",
    "id": "_toy_cpu_x",
    "version": 1,
    "license": "MIT",
    "python-depends": [],
    "backend": {"type": "cpu"},
}


def read(**changes):
    document = {**LEAST, **changes}
    return Metadata.from_json(json.dumps(document).encode(), source="v/metadata.json")


def test_the_form_is_the_hubs():
    text = WHOLE.to_json().decode()
    keys = "name id version kernels-minver license upstream source python-depends kernel-depends"
    assert [*json.loads(text)] == [*keys.split(), "backend", "digest", "provenance"]
    assert text.startswith('{\n  "name": "flash-attn",\n  "id"')
    assert text.endswith("}")
    document = json.loads(text)
    assert document["backend"]["archs"] == ["10.0", "7.5", "9.0+PTX"], "sorted as strings"
    assert list(document["digest"]["files"]) == ["a.py", "b.py"]


def test_a_document_round_trips():
    again = Metadata.from_json(WHOLE.to_json())
    assert replace(again, archs=WHOLE.archs) == WHOLE
    assert again.to_json() == WHOLE.to_json()
    assert again.python_name == "flash_attn"


def test_empty_lists_and_the_least_client_are_always_written():
    document = json.loads(read().to_json())
    assert document["python-depends"] == document["kernel-depends"] == []
    assert document["kernels-minver"] == "0.14.0"
    depends = [{"repo-id": "a/b", "version": 1}]
    assert json.loads(read(**{"kernel-depends": depends}).to_json())["kernels-minver"] == "0.17.0"
    assert not {"digest", "provenance", "upstream"} & set(document)


def test_several_upstreams_need_a_newer_client():
    addresses = ["https://example.org/a.git", "https://example.org/b.git"]
    document = json.loads(read(upstream=addresses).to_json())
    assert (document["upstream"], document["kernels-minver"]) == (addresses, "0.18.0")
    assert json.loads(read(upstream=addresses[:1]).to_json())["upstream"] == addresses[0]


# What is read at all is compared with the hub's client in tests/differential.
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "Toy"}, "'name' is \"Toy\""),
        ({"version": True}, "'version' is true"),
        ({"backend": {"type": "npu"}}, "'type' is \"npu\", not one of cann"),
        ({"backend": []}, "'backend' is not an object"),
        ({"upstream": ["https://a/b", "not a url"]}, "'upstream' is"),
        ({"kernel-depends": [{"repo-id": "a/b"}]}, "either a version or a revision"),
        ({"provenance": {}}, "lacks 'kernel-builder'"),
    ],
)
def test_a_mistake_is_reported_with_file_and_key(changes, words):
    with pytest.raises(IntegrityError) as caught:
        read(**changes)
    assert words in str(caught.value)
    assert "v/metadata.json" in str(caught.value)


def test_an_ambiguous_or_invalid_document_is_refused():
    text = json.dumps(LEAST)
    for data in ("", "[]", "\xff", text.replace("{", '{"name": "other", ', 1), f"{text} x"):
        with pytest.raises(IntegrityError, match=r"metadata\.json"):
            Metadata.from_json(data.encode("latin-1"))
