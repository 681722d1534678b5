# SPDX-License-Identifier: Apache-2.0
"""A project's plan with other objects in it: what reads them changes, and nothing else."""

import hashlib
from dataclasses import replace

import pytest
from unit.build.plan import test_planner as test_plan

from kernforge.build.plan import graph
from kernforge.build.plan.graph import Action
from kernforge.jit.device import replan
from kernforge.manifest import document
from kernforge.project import units

SOURCE = '#include "op.h"\n#include <cuda_fp16.h>\n__global__ void k() {}\n'


@pytest.fixture
def parts():
    files = test_plan.FILES | {"op.cu": SOURCE}
    sources = units.Sources(
        digests={p: hashlib.sha256(t.encode()).hexdigest() for p, t in files.items()},
        texts={p: t for p, t in files.items() if p.endswith((".cpp", ".cu", ".h"))},
        bundled={"registration.h": "// bundled\n"},
    )
    parsed = document.parse(test_plan.MANIFEST.format(abi=""))
    return replan.Parts(manifest=parsed, sources=sources, lock=test_plan.LOCK)


def made(pattern, parts):
    return replan.made(test_plan.make([pattern], {"op.cu": SOURCE}), parts)


def other(action):
    return Action(title="other", argv=(), inputs=(), outputs=action.outputs, roots=(), key="0" * 64)


def test_the_cuda_sources_of_a_plan_are_found(parts):
    found = made("torch213-*-cu130-*", parts)
    (unit,) = found.cuda
    assert (unit.path, set(unit.texts)) == ("op.cu", {"op.cu", "op.h"})
    assert unit.foreign == ("cuda_fp16.h",)
    assert unit.action.argv[0].endswith("/nvcc")
    assert found.link.key == found.plan.artifacts[0].extension


def test_a_plan_without_cuda_or_of_several_variants_is_none(parts):
    assert made("torch213-*-cpu-*", parts) is None
    assert made("torch213-*", parts) is None


def test_what_reads_another_object_has_another_key_and_the_rest_stays(parts):
    before = made("torch213-*-cu130-*", parts)
    (unit,) = before.cuda
    new = other(unit.action)
    after = replan.with_objects(before, {"op.cu": new}, parts)
    keys = {one.key for one in after.plan.actions}
    assert unit.action.key not in keys
    gone = {one.key for one in before.plan.actions} - keys
    assert gone == {unit.action.key, before.link.key}
    assert new.key in graph.needs(after.link)
    assert after.link.key == after.plan.artifacts[0].extension != before.link.key
    assert replace(after.link, key="", inputs=()) == replace(before.link, key="", inputs=())
    assert replan.with_objects(before, {}, parts) == before
