# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from kernforge.errors import RegistryError
from kernforge.registry.api import open_registry
from kernforge.registry.hub import endpoint
from kernforge.system.environment import Environment

USUAL = {"HF_ENDPOINT": "https://hub.example.com/"}


@pytest.mark.parametrize(
    ("location", "variables", "expected"),
    [
        ("hf://", {}, ("https://huggingface.co", "~/.cache/huggingface/hub", True)),
        ("hf://", USUAL, ("https://hub.example.com", "~/.cache/huggingface/hub", True)),
        ("hf+https://hub.example.com", USUAL, ("https://hub.example.com", None, True)),
        ("hf://", {"HF_HOME": "/h"}, ("https://huggingface.co", "/h/hub", True)),
        ("hf://", {"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}, ("https://huggingface.co", "/c", True)),
        ("hf://", {"KERNELS_CACHE": "/k", "HF_HUB_CACHE": "/c"}, (None, "/k", True)),
        ("hf://", {"XDG_CACHE_HOME": "/x"}, (None, "/x/huggingface/hub", True)),
        ("hf+http://10.0.0.1:80", {}, ("http://10.0.0.1:80", "/kf/hubs/10.0.0.1-80", False)),
    ],
)
def test_environment_configures_the_hub(location, variables, expected):
    url, cache, own_token = expected
    given = {"KERNFORGE_HOME": "/kf", "HF_TOKEN": "t", **variables}
    hub = endpoint(location, Environment(given))
    assert url in {None, hub.url}
    assert cache is None or hub.cache == Path(cache).expanduser()
    assert (bool(hub.token), hub.token_file is not None) == (own_token, own_token)
    assert not hub.offline
    silent = endpoint(location, Environment({**given, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}))
    assert (silent.token, silent.token_file) == (None, None)


def test_invalid_hub_addresses_are_refused():
    for location in ("hf://host", "hf+https://", "hf+ftp://host", "https://huggingface.co"):
        with pytest.raises(RegistryError, match="not a registry that kernforge can open"):
            open_registry(location)
    for location in ("hf+https://user:secret@host", "hf+https://ho st"):
        with pytest.raises(RegistryError, match="not the address of a hub"):
            open_registry(location)


def test_offline_variable_reads_as_in_the_hubs_client():
    for value, offline in [("1", True), ("true", True), ("0", False), ("", False)]:
        assert endpoint("hf://", Environment({"HF_HUB_OFFLINE": value})).offline is offline
