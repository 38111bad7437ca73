"""Pure: from a form, the Python source of its encoder: one expression that joins the parts of a record.

Source is made, as dataclasses does it, because a loop over forms would be several times slower.
Not the header (schemas/codec.py): these are bodies only.

Next: schemas/decoders.py
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, assert_never

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
from schemas.varint import LONGS, bad, double, long_bytes, ref_bytes

Encoder = Callable[[Any, Mapping[bytes, BlobRef]], bytes]
"""Takes an event and the large values that moved into blobs; gives the Avro body."""


def encoder_of(record: Record) -> Encoder:
    """Make the encoder of a record. It raises RejectedError on values that the contract does not allow."""
    source = _Source()
    source.add_record(record)
    return source.compiled(f"encode_{record.kind.__name__}")


class _Source:
    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.names: dict[str, Any] = {
            "LONGS": LONGS,
            "bad": bad,
            "is_finite": math.isfinite,
            "join": b"".join,
            "long": long_bytes,
            "pack_double": double.pack,
            "ref": ref_bytes,
        }

    def compiled(self, name: str) -> Encoder:
        exec(compile("\n".join(self.functions.values()), f"<{name}>", "exec"), self.names)
        encoder: Encoder = self.names[name]
        return encoder

    def add_record(self, record: Record) -> str:
        """Write the function of a record, once; give its name."""
        name = f"encode_{record.kind.__name__}"
        if name not in self.functions:
            self.functions[name] = ""
            lines, parts = [], []
            for number, (field, form) in enumerate(record.fields):
                more_lines, more_parts = self.field(form, f"event.{field}", f"v{number}")
                lines += more_lines
                parts += more_parts
            body = "\n".join(f"    {line}" for line in lines)
            joined = "".join(f"        {part},\n" for part in parts)
            self.functions[name] = f"def {name}(event, moved):\n{body}\n    return join((\n{joined}    ))\n"
        return name

    def field(self, form: Form, value: str, local: str) -> tuple[list[str], list[str]]:
        """Give the lines that must run first, and the parts that are then joined."""
        match form:
            case Large():
                return self.large(form, value, local)
            case Many():
                item = self.expression(form.item, "item", local)
                return [f"{local} = {value}"], _block(local, f"{item} for item in {local}")
            case Table():
                pair = (
                    f"{self.expression(Text(), 'key', local)} + {self.expression(form.value, 'item', local)}"
                )
                return [f"{local} = sorted({value}.items())"], _block(
                    local, f"{pair} for key, item in {local}"
                )
            case Nullable():
                inner = self.expression(form.inner, local, f"{local}_")
                return [f"{local} = {value}"], [f'b"\\0" if {local} is None else b"\\2" + {inner}']
            case Text():
                return [f"{local} = {value}.encode()"], [_length(local), local]
            case _:
                return [], [self.expression(form, value, local)]

    def expression(self, form: Form, value: str, local: str) -> str:
        """Give one expression for the bytes of a value."""
        match form:
            case Text():
                return f"(({_length(f'({local} := {value}.encode())')}) + {local})"
            case Octets():
                return f"(({_length(value)}) + {value})"
            case Long():
                return f"(LONGS[n] if 0 <= (n := {value}) < {len(LONGS)} else long(n))"
            case Double():
                return f'(pack_double(x) if is_finite(x := {value}) else bad("a finite number"))'
            case Flag():
                return f'(b"\\1" if {value} else b"\\0")'
            case Symbol():
                table = f"of_{form.kind.__name__}"
                self.names[table] = {symbol: long_bytes(at) for at, symbol in enumerate(form.symbols)}
                return f"{table}[{value}._value_]"
            case Record():
                return f"{self.add_record(form)}({value}, moved)"
            case Large() | Many() | Table() | Nullable():
                raise ValueError(f"expected {form} as a field of a record only: wrap it in one")
            case _:
                assert_never(form)

    def large(self, form: Large, value: str, local: str) -> tuple[list[str], list[str]]:
        """Write bytes in place, or the name of the blob they moved to."""
        null, plain, blob = (0, 2, 4) if form.is_nullable else (None, 0, 2)
        lines = [f"{local} = {value}"]
        if null is not None:
            lines += [f"if {local} is None:", f"    {local}, {local}_ = b'', {bytes([null])!r}", "else:"]
        indent = "    " if form.is_nullable else ""
        count = ""
        if form.check is not None:
            check = form.check.__name__
            self.names[check] = form.check
            lines.append(f"{indent}{check}({local})")
            count = f"({_long(f'len({local}) // {form.item_bytes}')}) + "
        lines += [
            f"{indent}if moved and {local} in moved:",
            f"{indent}    {local}, {local}_ = b'', {bytes([blob])!r} + ref(moved[{local}])",
            f"{indent}else:",
            f"{indent}    {local}_ = {bytes([plain])!r} + {count}({_length(local)})",
        ]
        return lines, [f"{local}_", local]


def _block(local: str, items: str) -> list[str]:
    return [f'({_length(local)}) if {local} else b""', f"*[{items}]", 'b"\\0"']


def _length(value: str) -> str:
    return _long(f"len({value})")


def _long(number: str) -> str:
    return f"LONGS[n] if (n := {number}) < {len(LONGS)} else long(n)"
