# SPDX-License-Identifier: Apache-2.0

from kernforge.publish.hub_commits import Operation, batches, plan


def test_a_plan_is_the_difference_of_two_trees():
    head = {"README.md": "r", "build/a/x": "1", "build/a/y": "2", "build/b/z": "3", "other/q": "4"}
    target = {"build/a/x": "1", "build/a/y": "5", "build/c/w": "6"}
    assert plan(head, target, whole=["build"]) == (
        Operation(path="build/a/y", content="5"),
        Operation(path="build/b/z", content=None),
        Operation(path="build/c/w", content="6"),
    )
    assert plan(target, target, whole=["build"]) == ()


def test_a_batch_holds_whole_variants_where_they_fit():
    def many(variant, count):
        return [Operation(path=f"build/{variant}/{n}", content="x") for n in range(count)]

    groups = batches([*many("a", 4), *many("b", 5), *many("c", 3), *many("d", 25)], most=10)
    assert [len(group) for group in groups] == [9, 3, 10, 10, 5]
    assert {o.path.split("/")[1] for o in groups[0]} == {"a", "b"}
    assert batches([]) == []
