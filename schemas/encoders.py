"""Pure: from a form, the Python source of its encoder: one expression that joins the parts of a record.

Source is made, as dataclasses does it, because a loop over forms would be several times slower.
Not the choice of a schema (schemas/codec.py). In the source `event` is the record, `moved` holds
what moved into blobs, and the short names are scratch.

Next: schemas/decoders.py
"""

from collections.abc import Callable, Mapping
from functools import singledispatchmethod
from itertools import groupby
from struct import Struct
from typing import Any

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
from schemas.varint import LONGS, bad, long_bytes, ref_bytes

Encoder = Callable[[Any, Mapping[bytes, BlobRef]], bytes]
"""Takes an event and the large values that moved into blobs; gives header and body."""


def encoder_of(record: Record, header: bytes) -> Encoder:
    """Make the encoder of a record. It raises RejectedError on values that the contract does not allow."""
    source = _Source()
    source.names["HEADER"] = header
    name = source.add_record(record, first="HEADER")
    exec(compile("\n".join(source.functions.values()), f"<{name}>", "exec"), source.names)
    encoder: Encoder = source.names[name]
    return encoder


class _Source:
    """The functions written so far, and the names that they use."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.names: dict[str, Any] = {
            "LONGS": LONGS,
            "bad": bad,
            "join": b"".join,
            "long": long_bytes,
            "ref": ref_bytes,
        }

    def add_record(self, record: Record, *, first: str | None = None) -> str:
        """Write the function of a record, once; give its name."""
        name = f"encode_{record.kind.__name__}"
        if name in self.functions:
            return name
        lines: list[str] = []
        parts: list[str] = [first] if first else []
        for is_double, group in groupby(enumerate(record.fields), lambda field: field[1][1] == Double()):
            fields = [(f"v{number}", f"event.{field}", form) for number, (field, form) in group]
            if is_double:
                parts.append(self.doubles([value for _, value, _ in fields]))
                continue
            for local, value, form in fields:
                lines += [f"    {line}\n" for line in self.lines(form, value, local)]
                parts += self.parts(form, value, local)
        joined = "".join(f"        {part},\n" for part in parts)
        self.functions[name] = (
            f"def {name}(event, moved):\n{''.join(lines)}    return join((\n{joined}    ))\n"
        )
        return name

    def doubles(self, values: list[str]) -> str:
        """Write neighbouring doubles at once; x - x is 0 unless x is NaN or infinite."""
        pack = f"pack_{len(values)}"
        self.names[pack] = Struct(f"<{len(values)}d").pack
        locals_ = [f"x{number}" for number in range(len(values))]
        zero = " + ".join(
            f"({local} := {value}) - {local}" for local, value in zip(locals_, values, strict=True)
        )
        return f'({pack}({", ".join(locals_)}) if {zero} == 0.0 else bad("a finite number"))'

    def lines(self, form: Form, value: str, local: str) -> list[str]:
        """Give the lines that run before a field's parts are joined."""
        match form:
            case Text():
                return [f"{local} = {value}.encode()"]
            case Table():
                return [f"{local} = sorted({value}.items())"]
            case Large():
                return [f"{local} = {value}", *self.large(form, local)]
            case _:
                return [f"{local} = {value}"]

    @singledispatchmethod
    def parts(self, form: Form, _value: str, local: str) -> list[str]:
        """Give the parts of a field, to be joined."""
        return [self.expression(form, local, f"{local}_")]

    @parts.register
    def _(self, _form: Text, _value: str, local: str) -> list[str]:
        return [_length(local), local]

    @parts.register
    def _(self, _form: Large, _value: str, local: str) -> list[str]:
        return [f"{local}_", local]

    @parts.register
    def _(self, form: Many, _value: str, local: str) -> list[str]:
        return _block(local, f"{self.expression(form.item, 'item', f'{local}_')} for item in {local}")

    @parts.register
    def _(self, form: Table, _value: str, local: str) -> list[str]:
        key = self.expression(Text(), "key", f"{local}_")
        item = self.expression(form.value, "item", f"{local}_")
        return _block(local, f"{key} + {item} for key, item in {local}")

    @parts.register
    def _(self, form: Nullable, _value: str, local: str) -> list[str]:
        inner = self.expression(form.inner, local, f"{local}_")
        return [f'b"\\0" if {local} is None else b"\\2" + {inner}']

    @singledispatchmethod
    def expression(self, form: Form, _value: str, _local: str) -> str:
        """Give one expression for the bytes of a value."""
        raise ValueError(f"expected {form} as a field of a record only: wrap it in a record")

    @expression.register
    def _(self, _form: Text, value: str, local: str) -> str:
        return f"(({_length(f'({local} := {value}.encode())')}) + {local})"

    @expression.register
    def _(self, _form: Octets, value: str, _local: str) -> str:
        return f"(({_length(value)}) + {value})"

    @expression.register
    def _(self, _form: Long, value: str, _local: str) -> str:
        return f"(LONGS[{value}] if 0 <= {value} < {len(LONGS)} else long({value}))"

    @expression.register
    def _(self, _form: Double, value: str, _local: str) -> str:
        return self.doubles([value])

    @expression.register
    def _(self, _form: Flag, value: str, _local: str) -> str:
        return f'(b"\\1" if {value} else b"\\0")'

    @expression.register
    def _(self, form: Symbol, value: str, _local: str) -> str:
        table = f"of_{form.kind.__name__}"
        self.names[table] = {symbol: long_bytes(at) for at, symbol in enumerate(form.symbols)}
        return f"{table}[{value}._value_]"

    @expression.register
    def _(self, form: Record, value: str, _local: str) -> str:
        return f"{self.add_record(form)}({value}, moved)"

    def large(self, form: Large, local: str) -> list[str]:
        """Write bytes in place, or the name of the blob they moved to: `v_` the head, `v` the bytes."""
        null, plain, blob = (b"\0", b"\2", b"\4") if form.is_nullable else (b"", b"\0", b"\2")
        checked, count = [], ""
        if form.check is not None:
            self.names[form.check.__name__] = form.check
            checked = [f"{form.check.__name__}({local})"]
            count = f"({_long(f'len({local}) // {form.item_bytes}')}) + "
        lines = [
            *checked,
            f"if moved and {local} in moved:",
            f"    {local}, {local}_ = b'', {blob!r} + ref(moved[{local}])",
            "else:",
            f"    {local}_ = {plain!r} + {count}({_length(local)})",
        ]
        if not form.is_nullable:
            return lines
        absent = [f"if {local} is None:", f"    {local}, {local}_ = b'', {null!r}"]
        return [*absent, "else:", *[f"    {line}" for line in lines]]


def _block(local: str, items: str) -> list[str]:
    return [f'({_length(local)}) if {local} else b""', f"*[{items}]", 'b"\\0"']


def _length(value: str) -> str:
    return _long(f"len({value})")


def _long(number: str) -> str:
    return f"LONGS[n] if (n := {number}) < {len(LONGS)} else long(n)"
