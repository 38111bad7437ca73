"""Pure: from a form, the Python source of its decoder: straight lines that cut bytes and build a dataclass.

Whatever the bytes are, a decoder ends in an event, a RejectedError, or one of REFUSALS, in nothing else.
Not the header (schemas/codec.py): these are bodies only.

Next: schemas/codec.py
"""

from collections.abc import Callable, Mapping
from typing import Any, assert_never

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

Decoder = Callable[[bytes, int, int, Mapping[Sha256, bytes], list[BlobRef]], tuple[Any, int]]
"""Takes the data, where the body starts and ends, the blobs, and a list for those that are missing."""

REFUSALS = (IndexError, KeyError, UnicodeDecodeError)
"""How generated lines meet an early end, an unknown symbol and what is no UTF-8."""

_INDENT = "    "


def decoder_of(record: Record) -> Decoder:
    """Make the decoder of a record. It gives the event and the place behind it."""
    source = _Source()
    source.add_record(record)
    return source.compiled(f"decode_{record.kind.__name__}")


class _Source:
    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.names: dict[str, Any] = {
            "LENGTH": varint.LENGTH_OF_BYTE,
            "LONG": varint.LONG_OF_BYTE,
            "FLAG": {0: False, 1: True},
            "bad": varint.bad,
            "claimed_at": varint.claimed_at,
            "double_at": varint.double_at,
            "length_at": varint.length_at,
            "long_at": varint.long_at,
            "num_items_at": varint.num_items_at,
            "truncated": varint.truncated,
        }

    def compiled(self, name: str) -> Decoder:
        exec(compile("\n".join(self.functions.values()), f"<{name}>", "exec"), self.names)
        decoder: Decoder = self.names[name]
        return decoder

    def add_record(self, record: Record) -> str:
        """Write the function of a record, once; give its name."""
        name = f"decode_{record.kind.__name__}"
        if name not in self.functions:
            self.functions[name] = ""
            self.names[record.kind.__name__] = record.kind
            lines: list[str] = []
            for number, (_, form) in enumerate(record.fields):
                lines += self.lines(form, f"v{number}")
            fields = ", ".join(f"{field}=v{number}" for number, (field, _) in enumerate(record.fields))
            lines.append(f"return {record.kind.__name__}({fields}), p")
            head = f"def {name}(d, p, end, blobs, missing):\n"
            self.functions[name] = head + "".join(f"{_INDENT}{line}\n" for line in lines)
        return name

    def lines(self, form: Form, local: str) -> list[str]:
        """Give the lines that read a value into a local name and move `p` behind it."""
        match form:
            case Text():
                return [*_slice(), f"{local} = d[p:q].decode()", "p = q"]
            case Octets():
                return [*_slice(), f"{local} = d[p:q]", "p = q"]
            case Long():
                return _long(local)
            case Double():
                return [f"{local}, p = double_at(d, p)"]
            case Flag():
                return [f"{local} = FLAG[d[p]]", "p += 1"]
            case Symbol():
                table = f"of_{form.kind.__name__}"
                self.names[table] = {2 * at: form.kind(symbol) for at, symbol in enumerate(form.symbols)}
                return [f"{local} = {table}[d[p]]", "p += 1"]
            case Nullable():
                return _union([("null", [f"{local} = None"]), ("", self.lines(form.inner, local))])
            case Record():
                return [f"{local}, p = {self.add_record(form)}(d, p, end, blobs, missing)"]
            case _:
                return self.composite(form, local)

    def composite(self, form: Large | Many | Table, local: str) -> list[str]:
        """Give the lines of what has several values, or several places to be."""
        match form:
            case Large():
                branches = [("plain", self.plain(form, local)), ("blob", self.claimed(form, local))]
                return _union([("null", [f"{local} = None"]), *branches] if form.is_nullable else branches)
            case Many():
                item = self.lines(form.item, f"{local}i")
                read = [*item, f"{local}.append({local}i)"]
                return [f"{local} = []", *_blocks(read, f"{local}n"), f"{local} = tuple({local})"]
            case Table():
                pair = [*self.lines(Text(), f"{local}k"), *self.lines(form.value, f"{local}i")]
                return [f"{local} = {{}}", *_blocks([*pair, f"{local}[{local}k] = {local}i"], f"{local}n")]
            case _:
                assert_never(form)

    def plain(self, form: Large, local: str) -> list[str]:
        """Read bytes in place."""
        read = [*_slice(), f"{local} = d[p:q]", "p = q"]
        if form.check is None or form.item_bytes is None:
            return read
        check = form.check.__name__
        self.names[check] = form.check
        counted = [
            *_length(f"{local}n"),
            *read,
            f"if n != {local}n * {form.item_bytes}:",
            f'{_INDENT}bad(f"{{{local}n}} numbers of {form.item_bytes} bytes")',
        ]
        return [*counted, f"{check}({local})"]

    def claimed(self, form: Large, local: str) -> list[str]:
        """Read bytes that moved into a blob."""
        read = [f"{local}, p = claimed_at(d, p, blobs, missing)"]
        return read if form.check is None else [*read, f"{form.check.__name__}({local})"]


def _length(local: str) -> list[str]:
    return [
        f"{local} = LENGTH[d[p]]",
        f"if {local} < 0:",
        f"{_INDENT}{local}, p = length_at(d, p)",
        "else:",
        f"{_INDENT}p += 1",
    ]


def _slice() -> list[str]:
    return [*_length("n"), "q = p + n", "if q > end:", f"{_INDENT}truncated()"]


def _long(local: str) -> list[str]:
    return [
        f"{local} = LONG[d[p]]",
        f"if {local} is None:",
        f"{_INDENT}{local}, p = long_at(d, p)",
        "else:",
        f"{_INDENT}p += 1",
    ]


def _blocks(read: list[str], count: str) -> list[str]:
    return [
        f"{count}, p = num_items_at(d, p)",
        f"while {count}:",
        f"{_INDENT}for _ in range({count}):",
        *[2 * _INDENT + line for line in read],
        f"{_INDENT}{count}, p = num_items_at(d, p)",
    ]


def _union(branches: list[tuple[str, list[str]]]) -> list[str]:
    lines = ["b = d[p]", "p += 1"]
    for at, (_, body) in enumerate(branches):
        lines += [f"{'el' if at else ''}if b == {2 * at}:", *[_INDENT + line for line in body]]
    return [*lines, "else:", f'{_INDENT}bad("a branch of the union")']
