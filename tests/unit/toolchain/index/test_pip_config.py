# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import UsageError
from kernforge.toolchain.index import pip_config

DEFAULT = "https://index.example/simple"


def read(*texts, env=None):
    files = [(f"pip{number}.conf", text) for number, text in enumerate(texts)]
    return pip_config.read(files, env or {}, default_index=DEFAULT)


def test_without_configuration_the_default_index_is_used():
    assert read().index_urls == (DEFAULT,)


def test_the_more_specific_file_wins_and_the_environment_over_it():
    site = "[global]\nindex-url = https://site/simple\ntimeout = 7\n"
    user = "[global]\nindex-url = https://user/simple\n"
    assert read(site, user).index_urls == ("https://user/simple",)
    assert read(site, user).timeout_s == 7
    env = {"PIP_INDEX_URL": "https://env/simple"}
    assert read(site, user, env=env).index_urls == ("https://env/simple",)


def test_the_download_section_wins_over_the_global_one():
    assert read("[download]\ncert = b\n[global]\ncert = a\n").cert == "b"


def test_lists_are_split_at_blanks_and_lines():
    config = read("[global]\nextra-index-url =\n  file:///a/simple\n  https://b/simple\n")
    assert config.index_urls == (DEFAULT, "file:///a/simple", "https://b/simple")


def test_no_index_leaves_only_the_links():
    config = read(env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels /more"})
    assert config.index_urls == ()
    assert config.find_links == ("/wheels", "/more")


def test_underscores_and_dashes_are_the_same():
    assert read("[global]\nextra_index_url = https://b/simple\n").index_urls[1:] == (
        "https://b/simple",
    )


def test_a_broken_file_is_named():
    with pytest.raises(UsageError, match=r"pip0\.conf is not a pip configuration file"):
        read("index-url = x\n")


def test_a_host_is_trusted_with_its_port_or_without():
    config = read("[global]\ntrusted-host = a.example b.example:8080\n")
    assert pip_config.is_trusted(config, "https://a.example:1/simple")
    assert pip_config.is_trusted(config, "http://b.example:8080/simple")
    assert not pip_config.is_trusted(config, "http://b.example/simple")


def test_files_are_looked_for_where_pip_does():
    names = pip_config.file_names({"PIP_CONFIG_FILE": "/x"}, home="/home/me", prefix="/venv")
    assert names[-2:] == ("/venv/pip.conf", "/x")
    assert "/home/me/.config/pip/pip.conf" in names
    assert pip_config.file_names({"PIP_CONFIG_FILE": "/dev/null"}, home="/", prefix="/") == ()
