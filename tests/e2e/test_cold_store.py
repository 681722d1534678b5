# SPDX-License-Identifier: Apache-2.0
"""Many processes on a cold store, and processes that are killed while they load."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import processes
from support.mortal import MORTAL
from support.variants import contents

import kernforge

pytest.importorskip("huggingface_hub")

REPO = "owner/toy"
FILES = 12
# One process that has imported everything forks the others, so that they all start at once.
CHILDREN = f"""{MORTAL}
import json
import kernforge
from kernforge.loader import api, host, search
from kernforge.registry import api as registry, directory

host._torch = lambda: None  # it takes seconds, and this kernel needs none
options = json.loads(sys.argv[1])
import huggingface_hub.hf_api


def child(home, deadly):
    try:
        if deadly:
            mortal(home, deadly)
        kernel = kernforge.get_kernel("owner/toy", version=1, trust_remote_code=True)
        if kernel.total() != options["total"]:
            os._exit(3)
        os._exit(0)
    except search.NotPublishedError:
        os._exit(4 if options["early"] else 5)
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)


found = []
for home, all_of_them in options["rounds"]:
    os.environ["KERNFORGE_HOME"] = home
    pids = []
    for deadly in all_of_them:
        pid = os.fork()
        if not pid:
            child(home, deadly)
        pids.append(pid)
    print("started", flush=True)
    found.append([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
print(json.dumps(found))
"""


@pytest.fixture
def build(tmp_path, write_variant):
    """A kernel of many files; it says how long they are."""
    files = {f"part{n}.py": f"TEXT = {'x' * 1000 * n!r}\n" for n in range(FILES)}
    names = ", ".join(f"part{n}" for n in range(FILES))
    total = f"from . import {names}\ndef total():\n    return sum(map(len, [{{}}]))\n".format(
        ", ".join(f"part{n}.TEXT" for n in range(FILES))
    )
    write_variant(
        tmp_path / "build",
        variant="torch-universal",
        unique="cold",
        files={"__init__.py": total, **files},
    )
    return tmp_path / "build"


def start(registry, *rounds, early=False):
    """Start processes.

    Args:
        registry: where the kernel is published.
        rounds: KERNFORGE_HOME, and for each process in it the number of the write that kills it, or
            0; one round begins when the one before has ended.
        early: whether they begin before the kernel is published.
    """
    options = {
        "rounds": [(str(home), deadly) for home, deadly in rounds],
        "total": sum(1000 * n for n in range(FILES)),
        "early": early,
    }
    environment = {
        **os.environ,
        "KERNFORGE_REGISTRY": registry,
        "PYTHONPATH": str(Path(kernforge.__file__).parents[1]),
    }
    return processes.start(
        [sys.executable, "-c", CHILDREN, json.dumps(options)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def statuses(process):
    # Not communicate(), which does not see what readline() has read ahead.
    with process.stdout as pipe:
        out = pipe.read()
    assert process.wait(timeout=300) == 0
    return json.loads(out.splitlines()[-1])


@pytest.fixture
def on_hub(hub, build):
    """The kernel on a hub; its registry's address."""
    hub.add(REPO, "v1", contents(build))
    return f"hf+{hub.url}"


def leftovers(place):
    """Files of a writer that was killed, but for those that the next writers sweep after a day."""
    return [path for path in place.rglob("*tmp-*") if not path.name.startswith("tmp-kernforge-")]


def test_a_hundred_processes_on_a_cold_store_fetch_each_file_once(hub, on_hub, tmp_path):
    assert statuses(start(on_hub, (tmp_path / "home", [0] * 100))) == [[0] * 100]
    # The parts, __init__.py and metadata.json.
    assert hub.counted()["GET resolve"] == FILES + 2
    assert not leftovers(tmp_path / "home")


def test_a_process_that_is_killed_while_it_loads_leaves_nothing_half(on_hub, tmp_path):
    writes = (1, 2, 3, 5, 9, 14, 20, 26, 33, 41, 50, 60)
    homes = [tmp_path / f"home{number}" for number in writes]
    rounds = [(home, [n]) for home, n in zip(homes, writes, strict=True)]
    found = statuses(start(on_hub, *rounds, *((home, [0, 0]) for home in homes)))
    assert found == [[-signal.SIGKILL]] * len(writes) + [[0, 0]] * len(writes)
    assert not any(map(leftovers, homes))


def test_a_hundred_processes_load_while_the_kernel_is_published(build, tmp_path):
    """Each sees a whole version or none, never a part."""
    from kernforge.publish.api import publish  # noqa: PLC0415 - the children must start first
    from kernforge.registry.directory import DirectoryRegistry  # noqa: PLC0415

    root = tmp_path / "registry"
    early = start(str(root), (tmp_path / "home", [0] * 50), early=True)
    assert early.stdout.readline() == "started\n"
    publish(build, DirectoryRegistry(root), REPO)
    assert statuses(start(str(root), (tmp_path / "home", [0] * 50))) == [[0] * 50]
    (found,) = statuses(early)
    assert set(found) <= {0, 4}
