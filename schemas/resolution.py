"""Pure: records of another version's schema, rewritten as if our newest schema had written them.

By fastavro, several times slower than the decoders of our own schemas: it serves while one side is upgraded,
and for what older versions left in the log.

Next: schemas/varint.py
"""

import io
import struct
from collections.abc import Callable
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError

from schemas.errors import RejectedError
from schemas.varint import truncated

_UNRESOLVED = (SchemaResolutionError, ArithmeticError, LookupError, TypeError, ValueError, struct.error)


def resolver_to(reader: dict[str, Any], writer: dict[str, Any]) -> Callable[[bytes], bytes]:
    """Make a function that rewrites a writer's body as a reader's. It raises RejectedError."""
    own, written = parse_schema(reader), parse_schema(writer)
    return lambda body: _rewritten(body, written, own)


def _rewritten(body: bytes, written: Any, own: Any) -> bytes:
    source, target = _Whole(body), io.BytesIO()
    try:
        value = schemaless_reader(source, written, own, return_record_name=True)
        schemaless_writer(target, own, value)
    except EOFError:
        truncated()
    except _UNRESOLVED as error:
        raise RejectedError(
            f"expected a record that resolves to our schema, got: {error}: compare the schemas",
            reason="bad_value",
        ) from error
    if source.tell() != len(body):
        raise RejectedError(
            f"expected the end after {source.tell()} bytes, got {len(body) - source.tell()} more: "
            "send one record at a time",
            reason="trailing",
        )
    return target.getvalue()


class _Whole(io.BytesIO):
    """Gives as many bytes as asked for, or none: fastavro takes a short string for a whole one."""

    def read(self, num_bytes: int | None = -1, /) -> bytes:
        data = super().read(num_bytes)
        if num_bytes is None or len(data) != num_bytes:
            raise EOFError(f"{num_bytes} bytes were to follow")
        return data
