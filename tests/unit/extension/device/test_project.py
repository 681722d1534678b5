# SPDX-License-Identifier: Apache-2.0
"""A project's plan with other objects in it: what reads them changes, and nothing else."""

import hashlib
from dataclasses import replace

import pytest
from unit.builder import test_planner as test_plan

from kernforge.builder.api import PlannedBuild
from kernforge.builder.graph import Action
from kernforge.extension.device import swap
from kernforge.manifest import document
from kernforge.project import units

SOURCE = '#include "op.h"\n#include <cuda_fp16.h>\n__global__ void k() {}\n'


@pytest.fixture
def sources():
    files = test_plan.FILES | {"op.cu": SOURCE}
    return units.Sources(
        manifest=document.parse(test_plan.MANIFEST.format(abi="")),
        digests={p: hashlib.sha256(t.encode()).hexdigest() for p, t in files.items()},
        texts={p: t for p, t in files.items() if p.endswith((".cpp", ".cu", ".h"))},
        bundled={"torch-ext/registration.h": "// bundled\n"},
    )


def module_plan(pattern, sources):
    plan = test_plan.make([pattern], {"op.cu": SOURCE})
    return swap.module_plan(PlannedBuild(lock=test_plan.LOCK, plan=plan, notes=()), sources)


def other(action):
    return Action(
        kind="cuda",
        title="other",
        argv=(),
        inputs=(),
        outputs=action.outputs,
        trees=(),
        key="0" * 64,
    )


def test_the_cuda_sources_of_a_plan_are_found(sources):
    module = module_plan("torch213-*-cu130-*", sources)
    (unit,) = module.cuda
    assert (unit.path, set(unit.texts)) == ("op.cu", {"op.cu", "op.h"})
    assert unit.closure.foreign == ("cuda_fp16.h",)
    assert unit.action.argv[0].endswith("/nvcc")
    assert module.link.key == module.plan.artifacts[0].extension


def test_a_plan_without_cuda_or_of_several_variants_is_none(sources):
    assert module_plan("torch213-*-cpu-*", sources) is None
    assert module_plan("torch213-*", sources) is None


def test_only_readers_of_a_swapped_object_get_another_key(sources):
    before = module_plan("torch213-*-cu130-*", sources)
    (unit,) = before.cuda
    new = other(unit.action)
    after = before.with_objects({"op.cu": new})
    keys = {one.key for one in after.plan.actions}
    assert unit.action.key not in keys
    gone = {one.key for one in before.plan.actions} - keys
    assert gone == {unit.action.key, before.link.key}
    assert new.key in after.link.needs
    assert after.link.key == after.plan.artifacts[0].extension != before.link.key
    assert replace(after.link, key="", inputs=()) == replace(before.link, key="", inputs=())
    assert before.with_objects({}) == before
