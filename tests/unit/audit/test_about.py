# SPDX-License-Identifier: Apache-2.0
"""``kernforge info`` and ``kernforge info --versions``."""

import json
import shutil

from support.commands import call

from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

REPO = "acme/toy"


def test_info_names_the_variant_for_this_machine(key, build, tmp_path, capsys):
    assert call("sign", str(build / "torch-cpu"), "--key", str(key)) == 0
    publish(build, DirectoryRegistry(tmp_path / "registry"), REPO)
    shutil.copytree(build, tmp_path / "copy")
    for what in (REPO, "copy"):
        capsys.readouterr()
        assert call("info", what, "--json") == 0
        info = json.loads(capsys.readouterr().out)
        assert (info["license"], info["would_load"]) == ("Apache-2.0", "torch-cpu")
        best, other = info["variants"]
        assert (best["fits"], best["signed"], best["digest"]) == (True, True, True)
        assert (other["fits"], other["signed"]) == (False, False)
        assert "is for cuda" in other["reason"]
    assert call("info", REPO) == 0
    text = capsys.readouterr().out
    assert "would load here: torch-cpu" in text
    assert "versions: 1.0.0" in text


def test_info_lists_each_version_once(build, tmp_path, capsys):
    registry = DirectoryRegistry(tmp_path / "registry")
    made = [publish(build, registry, REPO, version) for version in ("1.0.0", "1.10.0", "1.2.0")]
    with registry.writing("hub/toy"):
        commit, _ = registry.add_snapshot("hub/toy", registry.tree(REPO, made[0].commit))
        registry.set_ref("hub/toy", "v3", commit)
    for repo_id, names in ((REPO, ["1.0.0", "1.2.0", "1.10.0"]), ("hub/toy", ["3"])):
        capsys.readouterr()
        assert call("info", "--versions", repo_id, "--json") == 0
        assert [v["version"] for v in json.loads(capsys.readouterr().out)] == names
    assert call("info", "--versions", "acme/absent") == 8
