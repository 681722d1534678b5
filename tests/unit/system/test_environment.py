# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import platformdirs
import pytest

from kernforge.errors import UsageError
from kernforge.registry import api
from kernforge.system.environment import Environment
from kernforge.system.logins import login_files
from kernforge.trust import admission


def test_what_was_read_does_not_change_and_what_is_live_does(monkeypatch):
    monkeypatch.setenv("LOCAL_KERNELS", "a/b=c")
    before, live = Environment.read(), Environment.live()
    monkeypatch.setenv("LOCAL_KERNELS", "d/e=f")
    assert before.local_kernels == "a/b=c"
    assert live.local_kernels == Environment.read().local_kernels == "d/e=f"
    monkeypatch.delenv("LOCAL_KERNELS")
    assert live.local_kernels is None


@pytest.mark.parametrize(
    ("variables", "home", "registry"),
    [
        ({"KERNFORGE_HOME": "/k"}, "/k", "/k/registry"),
        ({"KERNFORGE_HOME": "~/k"}, "~/k", "~/k/registry"),
        (
            {"XDG_CACHE_HOME": "/x", "XDG_DATA_HOME": "/d"},
            "/x/kernforge",
            "/d/kernforge/registry",
        ),
        ({}, "~/.cache/kernforge", "~/.local/share/kernforge/registry"),
        ({"XDG_CACHE_HOME": "/x", "XDG_DATA_HOME": "/x"}, "/x/kernforge", "/x/kernforge/registry"),
    ],
)
def test_files_lie_where_the_variables_say(variables, home, registry):
    environment = Environment(variables)
    assert environment.home == Path(home).expanduser()
    assert environment.own_registry == Path(registry).expanduser()


@pytest.mark.parametrize("value", ["/x", "", None])
def test_the_users_directories_are_those_of_platformdirs(monkeypatch, value):
    names = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    for name in names:
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    monkeypatch.delenv("KERNFORGE_HOME", raising=False)
    environment = Environment.read()
    assert environment.home == platformdirs.user_cache_path("kernforge", appauthor=False)
    data = platformdirs.user_data_path("kernforge", appauthor=False)
    assert environment.own_registry == data / "registry"
    assert environment.user_config == platformdirs.user_config_path("kernforge", appauthor=False)


def test_a_user_without_a_home_directory_names_one_for_our_files(monkeypatch, tmp_path):
    """As in a container that runs as a number, which no account has."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
    for directory in ("home", "own_registry"):
        with pytest.raises(UsageError, match="no home directory") as error:
            getattr(Environment({}), directory)
        assert "HOME" in error.value.hint
    homeless = Environment({"KERNFORGE_HOME": str(tmp_path)})
    own, hub = api.open_default(homeless).members
    assert own.root.is_relative_to(tmp_path)
    assert hub.root.is_relative_to(tmp_path)
    for path in (admission.user_policy(homeless), *login_files(homeless)):
        assert path.parts[:3] in {("/", "dev", "null"), ("/", "run", "containers")}
