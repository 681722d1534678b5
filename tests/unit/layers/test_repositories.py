# SPDX-License-Identifier: Apache-2.0
from kernforge import LayerRepository, LocalLayerRepository


def test_repositories_are_equal_when_they_name_the_same():
    one = LayerRepository("a/b", layer_name="C", version=1, trust_remote_code=["a/b"])
    same = LayerRepository("a/b", layer_name="C", version=1, trust_remote_code=["a/b"])
    assert one == same
    assert hash(one) == hash(same)
    assert one != LayerRepository("a/b", layer_name="C", version=2)
    assert str(one) == "`a/b` (version 1), layer `C`"
    assert str(LocalLayerRepository("x", layer_name="C")) == "`x`, layer `C`"
