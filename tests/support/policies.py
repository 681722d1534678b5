# SPDX-License-Identifier: Apache-2.0
"""Trust policies, and a registry that they judge as they judge a hub."""

from pathlib import Path

from kernforge.errors import NetworkError
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system.environment import Environment
from kernforge.trust import admission

HUB = "https://hub.example"
REPO = "acme/toy"
NEVER = '[[rule]]\nadmit = "never"\n'
SIGNED = '[signer.s]\npublic-key = "{}"\n[[rule]]\nrepo = "acme/*"\nadmit = "signed"\nsigners = "s"'


class Remote(DirectoryRegistry):
    """A directory that stands for a hub: its address, and the publishers that it trusts."""

    def __init__(self, root: Path, *, publishers: tuple[str, ...] | None = ()) -> None:
        super().__init__(root)
        self.url = HUB
        self.publishers = publishers
        self.asked: list[str] = []
        self.reachable = True

    def is_trusted_publisher(self, owner: str) -> bool | None:
        self.asked.append(owner)
        if not self.reachable:
            raise NetworkError(f"{HUB} cannot be reached", hint="try again")
        return None if self.publishers is None else owner in self.publishers


def without_policies(monkeypatch, tmp_path: Path) -> Path:
    """A machine without policies, and where they would lie."""
    site = tmp_path / "etc" / "trust.toml"
    monkeypatch.setattr(admission, "SITE", site)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERNFORGE_TRUST", raising=False)
    monkeypatch.delenv("LOCAL_KERNELS", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return site


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def user(text: str) -> None:
    write(admission.user_policy(Environment.read()), text)
