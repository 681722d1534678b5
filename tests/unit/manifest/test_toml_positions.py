# SPDX-License-Identifier: Apache-2.0
from kernforge.manifest.toml_positions import key_lines


def test_lines_are_found_through_every_kind_of_toml():
    text = '''\
# "not" = 1
a.b = """
x = 1
""""
"q.\\"k" = [ # comment ]
  'one', { t = [1,
    2] },
]
[t]
c = '\'\''
]'\'\''
[[list]]
k = 1
[list.sub]
[[list]]
k = 2
'''.replace("'\\'\\''", "'''")
    lines = key_lines(text)
    expected = {
        ("a", "b"): 2,
        ('q."k',): 5,
        ('q."k', 0): 6,
        ('q."k', 1, "t", 1): 7,
        ("t", "c"): 10,
        ("list", 0, "k"): 13,
        ("list", 0, "sub"): 14,
        ("list", 1, "k"): 16,
    }
    assert {path: lines.get(path) for path in expected} == expected
    assert ("x",) not in lines
