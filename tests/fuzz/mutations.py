# SPDX-License-Identifier: Apache-2.0
"""Documents that are nearly right: what Hypothesis draws is how a real one is changed.

Each strategy knows the structure of its format, so that most documents reach what lies behind the
parser: a JSON value in another's place, a TOML token, a field of a header, a tar header whose
checksum is right.
"""

import copy
import json
import re
import struct
import tarfile

from hypothesis import strategies as st

# Written after the document is, because a JSON writer refuses them.
DEEP, LONG_NUMBER, NOT_A_NUMBER = "@@deep@@", "@@long@@", "@@nan@@"
ODD_VALUES = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308),
    *("", " ", "\0", "a\0b", "\ud800", "\udfff\ud800", "\u202e", "é", "٣", "²", "\n", "\t\r"),
    *("..", "../../etc/passwd", "/", "//", "/etc/passwd", "a/b/c", ".", "~", "C:\\x", "a//b", "-"),
    *("x" * 300, "x" * 5000, "1." * 60, "1.2", "01.02", "9" * 30, "1e9", "%s%n{}", "${HOME}", "*"),
    *("**" * 30 + "x", "*a" * 30, "https://", "git+ssh://[::1", "http://[", "acme/", "/toy", "a/b"),
    *([], {}, [[]], [None], [0], {"": None}, {"x": {}}, [{}], ["a", 1], {"sha256": 1}),
    *(DEEP, LONG_NUMBER, NOT_A_NUMBER),
]
# Values that the grammar of TOML allows, so that what reads them sees them.
VALUES = [
    *('""', '"\\u0000"', '"../../x"', '"*"', '"**x**"', '"/etc/passwd"', "'C:\\x'", '"é"', "true"),
    *("-1", "0", "1", "5", "6", "1.5", "inf", "nan", "9" * 30, "9" * 5000, "0xff", "07:32:00"),
    *("[]", "{}", "[[]]", '[""]', "[1]", '["cuda"]', '["cpu", "cpu"]', "{a = 1}", '"hub"', '"v"'),
    *('"12.8"', '"9.0+PTX"', '"1." ', '"https://["', '"' + "y" * 5000 + '"', '"**a**b**c*"'),
    *("[" * 64 + "]" * 64, "{a.b.c.d.e = 1}", '"never"', '"signed"', '"acme/x"', '"٣"'),
]
ODD_TOKENS = [
    *('"""', "'''", '"\\ud800"', '"\\', "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "#", "\n"),
    *("\r", "\0", "[[x]]", "[a.b.c]", "{a=1}", "[[[]]]", "0x_1", "1e400", "é", "\ufeff", "\ud7ff"),
    *("[" * 100, "[" * 5000, "a." * 100 + "a", "general", *VALUES),
]
ODD_BYTES = [b"\0", b"\xff", b"\x80", b"\n", b"{", b"}", b'"', b"\\", b"\xed\xa0\x80", b"PK\5\6"]
ODD_NUMBERS = [
    *(0, 1, 2, 3, 7, 8, 0x0F, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 9_900_000),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 8, 64, 4096),
]


def _paths(value, here=()):
    """Every place of a document below its root."""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    found = []
    for key in keys:
        found += [(*here, key), *_paths(value[key], (*here, key))]
    return found


def _at(document, path):
    for key in path:
        document = document[key]
    return document


def _change(document, draw):
    """Change one place of a JSON document."""
    paths = _paths(document)
    odd = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
    if not paths:
        return odd
    path = draw(st.sampled_from(paths))
    above = _at(document, path[:-1])
    key, action = path[-1], draw(st.integers(0, 7))
    if action == 0:
        del above[key]
    elif action == 1:  # another part of the same document
        above[key] = copy.deepcopy(_at(document, draw(st.sampled_from(paths))))
    elif action == 2:
        above[key] = [above[key]]
    elif action == 3 and isinstance(above[key], str):
        text = above[key]
        at = draw(st.integers(0, len(text)))
        above[key] = text[:at] + str(odd) + text[at + draw(st.integers(0, 5)) :]
    elif action == 4 and isinstance(above, list):
        above += [copy.deepcopy(above[key])] * draw(st.integers(1, 50))
    elif action == 5 and isinstance(above, dict):
        above[str(odd)] = above.pop(key) if draw(st.booleans()) else odd
    else:
        above[key] = odd
    return document


def _encoded(draw, text):
    """The bytes of a text, now and then changed."""
    data = text.encode(errors="surrogatepass")
    return draw(changed_bytes(data)) if draw(st.integers(0, 9)) == 0 else data


@st.composite
def json_documents(draw, seeds):
    """A JSON document with one to three changes of its values, and now and then of its bytes."""
    document = json.loads(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 3))):
        document = _change(document, draw)
    text = json.dumps(document, ensure_ascii=draw(st.booleans()))
    if '"@@' in text:
        depth = draw(st.sampled_from([30, 63, 64, 65, 300, 20_000]))
        text = text.replace(f'"{DEEP}"', "[" * depth + "]" * depth)
        text = text.replace(f'"{LONG_NUMBER}"', "9" * 5000)
        number = draw(st.sampled_from(["NaN", "-Infinity", "1e999"]))
        text = text.replace(f'"{NOT_A_NUMBER}"', number)
    return _encoded(draw, text)


@st.composite
def texts(draw, seeds):
    """A text with one to three changes of its values, tokens or lines."""
    text = draw(st.sampled_from(seeds)).decode()
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        what = draw(st.sampled_from(["value", "token", "line"]))
        if what == "line":
            lines = text.split("\n")
            at = draw(st.integers(0, len(lines) - 1))
            odd = draw(st.sampled_from([[], [lines[at]] * 3, [draw(st.sampled_from(ODD_TOKENS))]]))
            lines[at : at + draw(st.integers(0, 1))] = odd
            text = "\n".join(lines)
            continue
        pattern, odd = {
            "value": (r'(?<==)\s*("[^"\n]*"|[\w.-]+|\[[^\]]*\])', VALUES),
            "token": (r'"[^"\n]*"|[\w.-]+|[^\w\s]', ODD_TOKENS),
        }[what]
        spans = [match.span() for match in re.finditer(pattern, text)] or [(0, 0)]
        start, stop = draw(st.sampled_from(spans))
        text = text[:start] + draw(st.sampled_from(odd)) + text[stop:]
    return _encoded(draw, text)


@st.composite
def changed_bytes(draw, data, fields=()):
    """Bytes with one to four changes, half of them where numbers lie: in ``fields``."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        end = max(len(changed) - 1, 0)
        in_field = fields and draw(st.booleans())
        here = min(draw(st.sampled_from(fields) if in_field else st.integers(0, end)), end)
        action = draw(st.integers(0, 9))
        if action <= 4:
            width = draw(st.sampled_from([1, 2, 4, 8]))
            number = draw(st.sampled_from(ODD_NUMBERS) | st.integers(0, 2**64 - 1))
            changed[here : here + width] = struct.pack("<Q", number)[:width]
        elif action <= 6 and changed:
            changed[here] ^= 1 << draw(st.integers(0, 7))
        elif action == 7:
            del changed[here : here + draw(st.integers(1, 64))]
        elif action == 8:
            changed[here:here] = draw(st.sampled_from(ODD_BYTES))
        elif draw(st.booleans()):
            del changed[here:]
        else:
            changed[here:here] = changed[here : here + draw(st.integers(1, 4096))]
    return bytes(changed)


@st.composite
def binaries(draw, seeds):
    """An ELF file or a zip archive whose first header or last table is changed, or any byte."""
    data = draw(st.sampled_from(seeds))
    end = len(data)
    return draw(changed_bytes(data, [*range(min(64, end)), *range(max(0, end - 2000), end)]))


_BLOCK = 512
_TAR_FIELDS = [(0, 100), (100, 8), (124, 12), (148, 8), (156, 1), (157, 100), (257, 8), (345, 155)]
_TAR_VALUES = [
    *(b"", b"..", b"../../evil", b"/evil", b"a" * 100, b"a/" * 50, b"\xff" * 8, b"-1"),
    *(b"77777777777", b"00000000010", b"\x80" + bytes(9) + b"\xff\xff", b"\xff" * 12),
    *(b"0", b"1", b"2", b"3", b"5", b"6", b"7", b"K", b"L", b"S", b"V", b"X", b"x", b"g"),
]


@st.composite
def tars(draw, seeds, seal):
    """A sealed tar whose headers were changed before, most of them with the right checksum."""
    changed = bytearray(draw(st.sampled_from(seeds)))
    headers = [n for n in range(0, len(changed), _BLOCK) if changed[n + 257 : n + 262] == b"ustar"]
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.sampled_from(headers))
        offset, width = draw(st.sampled_from(_TAR_FIELDS))
        value = draw(st.sampled_from(_TAR_VALUES) | st.binary(max_size=width))[:width]
        changed[start + offset : start + offset + width] = value.ljust(width, b"\0")
        if offset != 148 and draw(st.integers(0, 9)):
            total = tarfile.calc_chksums(bytes(changed[start : start + _BLOCK]))[0]
            changed[start + 148 : start + 156] = b"%06o\0 " % total
    part = draw(st.integers(0, 5))
    data = seal(draw(changed_bytes(bytes(changed))) if part == 0 else bytes(changed))
    return draw(changed_bytes(data)) if part == 1 else data
