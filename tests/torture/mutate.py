"""Change the content of a file: by bytes, or in the structure of its format, so that deeper code sees the change.

Every function takes the content and a random generator, and returns the changed content. Equal generators give equal
changes.
"""

import contextlib
import io
import json
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

from twofold.checksums import KEY, seal

Mutator = Callable[[bytes, Random], bytes]

BYTES = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"9" * 11, b"\0" * 30, b"\x80", b"\n", b'"', b"{}", b"-1", b"\x00\x00\x01")
NUMBERS = (0, -1, 1, 2, 255, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e-320, 1e308, -1e308)
NAMES = ("FORMAT", "../../x", "/", "", "a\0b", "\udcff", "\x1b[31m", "x" * 5000, "NaN", "1", "__class__", "é", "timm:x")
DTYPES = (
    "<f8",
    ">f8",
    "<f2",
    "|O",
    "|V8",
    "<U0",
    "<U9",
    "|S0",
    "|b1",
    "<M8[ns]",
    "<c16",
    "[('a','|O')]",
    "'x'",
    "None",
)


def by_bytes(content: bytes, rng: Random) -> bytes:
    """Replace, insert, remove or repeat a few bytes. Headers are changed more often than the rest."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        start = int(rng.random() ** rng.choice((1, 3)) * len(content))
        kind = rng.randrange(7)
        if kind == 0 and content[start:]:
            content = content[:start] + bytes([content[start] ^ 1 << rng.randrange(8)]) + content[start + 1 :]
        elif kind == 1:
            content = content[:start]
        elif kind == 2:
            content = content[:start] + content[start + rng.randrange(1, 40) :]
        elif kind == 3:
            content = content[:start] + rng.choice(BYTES) + content[start:]
        elif kind == 4:
            part = content[start : start + rng.randrange(1, 200)]
            content = content[:start] + part * rng.randrange(2, 5) + content[start:]
        elif kind == 5:
            size = rng.randrange(1, 9)
            content = content[:start] + rng.randbytes(size) + content[start + size :]
        else:
            new = rng.choice(BYTES)
            content = content[:start] + new + content[start + len(new) :]
    return content


def some_value(rng: Random) -> Any:
    kind = rng.randrange(10)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 6:
        return rng.choice(NAMES)
    if kind == 6:
        return rng.choice((math.nan, math.inf, -math.inf))
    if kind == 7:
        return rng.choice(([], {}, [[]], [{}], {"": {}}, [None], [1, "a"], {"a": [1]}, [0] * 3))
    if kind == 8:
        nested: Any = 1
        for _ in range(rng.choice((3, 50, 500))):
            nested = [nested]
        return nested
    return rng.choice((None, True, False))


def value(tree: Any, rng: Random) -> Any:
    """Change a place in nested lists and dicts: another value, another key, one more item or one less."""
    if isinstance(tree, str) and tree[:1] in "{[" and rng.random() < 0.8:  # JSON in JSON, as in safetensors
        with contextlib.suppress(ValueError):
            return json.dumps(value(json.loads(tree), rng))
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.1:
        return some_value(rng)
    if isinstance(tree, dict):
        key, kind = rng.choice(list(tree)), rng.randrange(8)
        if kind == 0:
            return {name: tree[name] for name in tree if name != key}
        if kind == 1:
            return {(rng.choice(NAMES) if name == key else name): tree[name] for name in tree}
        if kind == 2:
            return tree | {rng.choice((key, rng.choice(NAMES))): tree[rng.choice(list(tree))]}
        return tree | {key: value(tree[key], rng)}
    at, kind = rng.randrange(len(tree)), rng.randrange(8)
    if kind == 0:
        return tree[:at] + tree[at + 1 :]
    if kind == 1:
        return tree[:at] + [tree[at]] * rng.choice((2, 3, 300)) + tree[at + 1 :]
    if kind == 2:
        return tree[:at]
    return [*tree[:at], value(tree[at], rng), *tree[at + 1 :]]


def dumped(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def by_json(content: bytes, rng: Random) -> bytes:
    if rng.random() < 0.15:
        return by_bytes(content, rng)
    tree = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        tree = value(tree, rng)
    if isinstance(tree, dict) and KEY in tree and rng.random() < 0.8:  # or else only the checksum is checked
        with contextlib.suppress(UnicodeEncodeError, ValueError, RecursionError):
            tree = seal({key: part for key, part in tree.items() if key != KEY})
    return dumped(tree)


def by_lines(content: bytes, rng: Random) -> bytes:
    """Change the lines of a file of JSON records."""
    lines = content.splitlines(keepends=True)
    if not lines or rng.random() < 0.1:
        return by_bytes(content, rng)
    at, kind = rng.randrange(len(lines)), rng.randrange(8)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, rng.choice((b"\n", b"null\n", b"[]\n", b"{}\n", b"NaN\n", b"[" * 3000 + b"\n", lines[at])))
    elif kind == 2:
        lines = lines[at:] + lines[:at]
    else:
        lines[at] = dumped(value(json.loads(lines[at]), rng)) + b"\n"
    return b"".join(lines)


def by_table(content: bytes, rng: Random) -> bytes:
    """Change cells of a table with commas, or of a text with words."""
    if rng.random() < 0.4:
        return by_bytes(content, rng)
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    cells = lines[at].split(b",")
    name = rng.choice((*NAMES, "path", "label", '"', "-1", "1e999", "nan", "٣", ";", "\t", *map(str, NUMBERS)))
    cells[rng.randrange(len(cells))] = name.encode("utf-8", "surrogatepass")
    lines[at] = rng.choice((b",".join(cells), b",".join(cells[1:]), b",".join(cells * 2)))
    return b"\n".join(lines)


def by_safetensors(content: bytes, rng: Random) -> bytes:
    if rng.random() < 0.3:
        return by_bytes(content, rng)
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    kind = rng.randrange(4)
    names = [name for name in header if name != "__metadata__"]
    if kind == 0 and len(names) > 1:  # tensors under each other's names
        one, other = rng.sample(names, 2)
        header[one], header[other] = header[other], header[one]
    elif kind == 1 and names:  # another type or shape of the same bytes
        place = header[rng.choice(names)]
        place["dtype"], place["shape"] = rng.choice(
            (
                ("I32", place["shape"]),
                (place["dtype"], [math.prod(place["shape"])]),
                (place["dtype"], [1, *place["shape"]]),
            )
        )
    elif kind == 2 and "__metadata__" in header:
        header["__metadata__"] = {
            key: text if not isinstance(text, str) else str(value(text, rng))
            for key, text in header["__metadata__"].items()
        }
    else:
        header = value(header, rng)
    text = dumped(header)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def by_npy(content: bytes, rng: Random) -> bytes:
    if rng.random() < 0.3:
        return by_bytes(content, rng)
    start = 10 + int.from_bytes(content[8:10], "little")
    sizes = [rng.choice((0, 1, 2, 3, 8, 10**6, 2**31, 2**40, 2**63, 10**30, -1)) for _ in range(rng.randrange(6))]
    shape = rng.choice((repr(tuple(sizes)), repr(tuple(sizes)), repr(sizes), "(1.5,)", "('a',)", "None"))
    kind = rng.choice((repr(rng.choice(DTYPES)), rng.choice(DTYPES), "'|u1'", "'<f4'"))
    order = rng.choice(("False", "True", "None", "1"))
    header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if rng.random() < 0.2:
        header = rng.choice(("{" * 150, "(" * 300, "1" * 9000, header[:-3], header.replace(":", ""), "\0" + header))
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content[start:]


def by_zip(content: bytes, rng: Random) -> bytes:
    """Change a member of an .npz file, or the archive itself."""
    if rng.random() < 0.4:
        return by_bytes(content, rng)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", rng.choice((0, 8))) as new:
        names = old.namelist()
        chosen, kind = rng.choice(names), rng.randrange(5)
        for name in names:
            member = old.read(name)
            if name == chosen:
                if kind == 0:
                    continue
                name = rng.choice((*NAMES[1:4], rng.choice(names), name + ".txt")) or "x" if kind == 1 else name
                member = by_npy(member, rng) if kind > 1 else member
            with contextlib.suppress(UnicodeEncodeError):
                new.writestr(name, member)
    return out.getvalue()


def by_tar(content: bytes, rng: Random) -> bytes:
    """Change a field of a header and correct its checksum."""
    if rng.random() < 0.4:
        return by_bytes(content, rng)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        start = rng.choice([member.offset for member in tar.getmembers()])
    block = bytearray(content[start : start + 512])
    at, size = rng.choice(((0, 100), (124, 12), (124, 12), (156, 1), (257, 8), (345, 155)))
    block[at : at + size] = rng.choice(
        (
            b"7" * (size - 1) + b"\0",
            b"\x80" + b"\0" * (size - 2) + b"\x7f" if size > 1 else b"L",
            b"\xff" * size,
            b"\0" * size,
            rng.randbytes(size),
            rng.choice(b"LKxgSD1235").to_bytes(1, "big") * size,
        )
    )[:size].ljust(size, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return content[:start] + bytes(block) + content[start + 512 :]


def by_png(content: bytes, rng: Random) -> bytes:
    """Change a chunk of a PNG file and correct its checksum."""
    if rng.random() < 0.4:
        return by_bytes(content, rng)
    chunks, at = [], 8
    while at + 12 <= len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + size]))
        at += 12 + size
    number = rng.randrange(len(chunks))
    name, body = chunks[number]
    if name == b"IDAT" and rng.random() < 0.5:
        with contextlib.suppress(zlib.error):
            body = zlib.compress(by_bytes(zlib.decompress(body), rng))
    elif name == b"IHDR" and rng.random() < 0.5:
        body = b"".join(rng.choice((1, 2, 9000, 60000, 2**31 - 1)).to_bytes(4, "big") for _ in range(2)) + body[8:]
    else:
        body = by_bytes(body, rng)
    chunks[number] = (rng.choice((name, name, name, b"tRNS", b"acTL", b"eXIf", b"iTXt")), body)
    if rng.random() < 0.2:
        chunks.insert(rng.randrange(len(chunks)), rng.choice(chunks))
    parts = [
        len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big") for name, body in chunks
    ]
    return content[:8] + b"".join(parts)


def by_sizes(content: bytes, rng: Random) -> bytes:
    """Change the header of an IDX file."""
    if rng.random() < 0.4:
        return by_bytes(content, rng)
    head = bytes((0, 0, rng.choice((8, 8, 8, 0x0D)), content[3]))
    sizes = b"".join(rng.choice((0, 1, 3, 28, 2**16, 2**31, 2**32 - 1)).to_bytes(4, "big") for _ in range(content[3]))
    return head + sizes + content[4 + len(sizes) :][: rng.choice((0, 1, len(content)))]
