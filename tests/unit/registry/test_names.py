# SPDX-License-Identifier: Apache-2.0
from kernforge.registry.names import majors, versions


def test_only_whole_references_count():
    names = ["v1", "v01", "v2.0", "v1.2.3", "v1.2.3rc1", "v1.10.0", "main", "v3x"]
    assert versions(names) == {(1, 2, 3): "v1.2.3", (1, 10, 0): "v1.10.0"}
    assert majors([*names, "v0", "v12"]) == (0, 1, 12)
