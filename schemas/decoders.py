"""Pure: from a form, the Python source of its decoder: straight lines that cut bytes and fill a dataclass.

Whatever the bytes are, a decoder ends in an event, a RejectedError, or one of REFUSALS, in nothing else.
Not the header (schemas/codec.py): these are bodies only. In the source `d` is the data, `p` the place,
`end` the end, `o` the record, and the other short names are scratch.

Next: schemas/resolution.py
"""

import struct
from collections.abc import Callable, Mapping
from functools import singledispatchmethod
from itertools import groupby
from typing import Any

from schemas import varint
from schemas.claims import BlobRef
from schemas.forms import (
    Double,
    Flag,
    Form,
    Large,
    Long,
    Many,
    Nullable,
    Octets,
    Record,
    Symbol,
    Table,
    Text,
)
from schemas.ids import Sha256
from schemas.varint import check_tokens

Decoder = Callable[[bytes, int, int, Mapping[Sha256, bytes], list[BlobRef]], tuple[Any, int]]
"""Takes the data, where the body starts and ends, the blobs, and a list for those that are missing."""

REFUSALS = (IndexError, KeyError, UnicodeDecodeError, struct.error)
"""How generated lines meet an early end, an unknown symbol, and what is no UTF-8."""

_INDENT = "    "


def decoder_of(record: Record) -> Decoder:
    """Make the decoder of a record. It gives the event and the place behind it."""
    source = _Source()
    name = source.add_record(record)
    exec(compile("\n".join(source.functions.values()), f"<{name}>", "exec"), source.names)
    decoder: Decoder = source.names[name]
    return decoder


class _Source:
    """The functions written so far, and the names that they use."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.names: dict[str, Any] = {
            "FLAG": {0: False, 1: True},
            "LONG": varint.LONG_OF_BYTE,
            "STEP": varint.STEP_OF_BYTE,
            "bad": varint.bad,
            "CONTINUED": 0x8080808080808080,
            "LAST_OF_EIGHT": 0x0080808080808080,
            "claimed_at": varint.claimed_at,
            "eight_at": struct.Struct("<Q").unpack_from,
            "length_at": varint.length_at,
            "long_at": varint.long_at,
            "num_items_at": varint.num_items_at,
            "truncated": varint.truncated,
        }

    def add_record(self, record: Record) -> str:
        """Write the function of a record, once; give its name.

        A frozen dataclass sets each field by a slow call. Its open twin has the same slots and no such call;
        once filled it becomes the dataclass, at a quarter of the cost.
        """
        kind = record.kind.__name__
        name = f"decode_{kind}"
        if name in self.functions:
            return name
        assert not hasattr(record.kind, "__post_init__"), "a filled twin would skip it"
        self.names[kind] = record.kind
        self.names[f"Open{kind}"] = type(f"Open{kind}", (), {"__slots__": record.kind.__slots__})
        lines = [f"def {name}(d, p, end, blobs, missing):", f"{_INDENT}o = Open{kind}()"]
        for is_double, group in groupby(record.fields, lambda field: field[1] == Double()):
            fields = [(f"o.{field}", form) for field, form in group]
            groups = (
                [self.doubles([target for target, _ in fields])]
                if is_double
                else [self.lines(form, target) for target, form in fields]
            )
            lines += [_INDENT + line for group_lines in groups for line in group_lines]
        lines += [f"{_INDENT}o.__class__ = {kind}", f"{_INDENT}return o, p\n"]
        self.functions[name] = "\n".join(lines)
        return name

    def doubles(self, targets: list[str]) -> list[str]:
        """Read neighbouring doubles at once; x - x is 0 unless x is NaN or infinite."""
        form = struct.Struct(f"<{len(targets)}d")
        unpack = f"unpack_{len(targets)}"
        self.names[unpack] = form.unpack_from
        locals_ = [f"x{number}" for number in range(len(targets))]
        return [
            f"{', '.join(locals_)}, = {', '.join(targets)}, = {unpack}(d, p)",
            f"if {' + '.join(f'{local} - {local}' for local in locals_)} != 0.0:",
            f'{_INDENT}bad("a finite number")',
            f"p += {form.size}",
        ]

    @singledispatchmethod
    def lines(self, form: Form, _target: str) -> list[str]:
        """Give the lines that read a value into its target and move `p` behind it."""
        raise ValueError(f"expected a form that can be read, got {form}")

    @lines.register
    def _(self, _form: Text, target: str) -> list[str]:
        return _measured(
            f"{target} = d[p + 1 : q].decode()", [*_length("n"), *_slice(), f"{target} = v.decode()"]
        )

    @lines.register
    def _(self, _form: Octets, target: str) -> list[str]:
        return _measured(f"{target} = d[p + 1 : q]", [*_length("n"), *_slice(), f"{target} = v"])

    @lines.register
    def _(self, _form: Long, target: str) -> list[str]:
        """One byte, two, eight (every time of this millennium, gathered by halves), or any other number."""
        return [
            "n = LONG[d[p]]",
            "if n is not None:",
            f"{_INDENT}{target} = n",
            f"{_INDENT}p += 1",
            "elif d[p + 1] < 128:",
            f"{_INDENT}n = d[p] & 127 | d[p + 1] << 7",
            f"{_INDENT}{target} = n >> 1 ^ -(n & 1)",
            f"{_INDENT}p += 2",
            "elif p + 8 <= end and (n := eight_at(d, p)[0]) & CONTINUED == LAST_OF_EIGHT:",
            f"{_INDENT}n = n & 0x007F007F007F007F | (n & 0x7F007F007F007F00) >> 1",
            f"{_INDENT}n = n & 0x00003FFF00003FFF | (n & 0x3FFF00003FFF0000) >> 2",
            f"{_INDENT}n = n & 0xFFFFFFF | n >> 32 << 28",
            f"{_INDENT}{target} = n >> 1 ^ -(n & 1)",
            f"{_INDENT}p += 8",
            "else:",
            f"{_INDENT}{target}, p = long_at(d, p)",
        ]

    @lines.register
    def _(self, _form: Double, target: str) -> list[str]:
        return self.doubles([target])

    @lines.register
    def _(self, _form: Flag, target: str) -> list[str]:
        return [f"{target} = FLAG[d[p]]", "p += 1"]

    @lines.register
    def _(self, form: Symbol, target: str) -> list[str]:
        table = f"of_{form.kind.__name__}"
        self.names[table] = {2 * at: form.kind(symbol) for at, symbol in enumerate(form.symbols)}
        return [f"{target} = {table}[d[p]]", "p += 1"]

    @lines.register
    def _(self, form: Nullable, target: str) -> list[str]:
        return _union([[f"{target} = None"], self.lines(form.inner, target)])

    @lines.register
    def _(self, form: Record, target: str) -> list[str]:
        return [f"{target}, p = {self.add_record(form)}(d, p, end, blobs, missing)"]

    @lines.register
    def _(self, form: Many, target: str) -> list[str]:
        read = [*self.lines(form.item, "item"), "items.append(item)"]
        return _blocks(read, "[]", f"{target} = tuple(items)", f"{target} = ()")

    @lines.register
    def _(self, form: Table, target: str) -> list[str]:
        read = [*self.lines(Text(), "key"), *self.lines(form.value, "item"), "items[key] = item"]
        return _blocks(read, "{}", f"{target} = items", f"{target} = {{}}")

    @lines.register
    def _(self, form: Large, target: str) -> list[str]:
        claimed = ["v, p = claimed_at(d, p, blobs, missing)"]
        branches = [[*self.plain(form), f"{target} = v"], [*claimed, *self.check(form), f"{target} = v"]]
        return _union([[f"{target} = None"], *branches] if form.is_nullable else branches)

    def plain(self, form: Large) -> list[str]:
        """Read bytes in place."""
        if form.check is None:
            return [*_length("n"), *_slice()]
        return [
            *_length("num"),
            *_length("n"),
            f"if n != num * {form.item_bytes}:",
            f'{_INDENT}bad(f"{{num}} numbers of {form.item_bytes} bytes")',
            *_slice(),
            *(self.check(form) if form.check is not check_tokens else []),  # counted is all that they need
        ]

    def check(self, form: Large) -> list[str]:
        """Refuse what a packed array may not hold."""
        if form.check is None:
            return []
        self.names[form.check.__name__] = form.check
        return [f"{form.check.__name__}(v)"]


def _measured(short: str, long: list[str]) -> list[str]:
    """Read what has its length in one byte and ends within the data, or else all else."""
    lines = ["q = p + STEP[d[p]]", "if q <= end:", f"{_INDENT}{short}", f"{_INDENT}p = q", "else:"]
    return [*lines, *[_INDENT + line for line in long]]


def _length(local: str) -> list[str]:
    """Read a length, which mostly has two bytes here."""
    return [
        "b = d[p]",
        "if b > 127 and not b & 1 and d[p + 1] < 128:",
        f"{_INDENT}{local} = (b & 127 | d[p + 1] << 7) >> 1",
        f"{_INDENT}p += 2",
        "else:",
        f"{_INDENT}{local}, p = length_at(d, p)",
    ]


def _slice() -> list[str]:
    return ["q = p + n", "if q > end:", f"{_INDENT}truncated()", "v = d[p:q]", "p = q"]


def _blocks(read: list[str], items: str, filled: str, empty: str) -> list[str]:
    """Read blocks of items until the empty one."""
    block = [
        "n = LONG[d[p]]",
        "p += 1",
        "if n is None or n < 0:",
        f"{_INDENT}n, p = num_items_at(d, p - 1)",
        "for _ in range(n):",
        *[_INDENT + line for line in read],
    ]
    some = [f"items = {items}", "while d[p]:", *[_INDENT + line for line in block], filled]
    return ["if d[p]:", *[_INDENT + line for line in some], "else:", f"{_INDENT}{empty}", "p += 1"]


def _union(branches: list[list[str]]) -> list[str]:
    lines = ["b = d[p]", "p += 1"]
    for at, body in enumerate(branches):
        lines += [f"{'el' if at else ''}if b == {2 * at}:", *[_INDENT + line for line in body]]
    return [*lines, "else:", f'{_INDENT}bad("a branch of the union")']
