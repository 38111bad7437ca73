"""Shell: schemas of other versions of this program, read from `reef.schemas.v1` when first met.

So gateway and streams can be upgraded in any order (STREAMS 14). Not the writing: publishers do that.
"""

from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Self

import structlog
from fastavro.schema import SchemaParseException

from schemas.bus.access import BusLimits, KafkaAccess
from schemas.bus.reader import Reader
from schemas.codec import SCHEMAS, Decode, decoder_for
from schemas.contract import Fingerprint, fingerprint_of, parsed
from schemas.errors import RejectedError
from schemas.records import Record
from schemas.topics import SCHEMAS_LOG

FOREIGN_SCHEMAS_MAX = 10_000
"""Anybody may write schemas; beyond this many nobody is upgrading, somebody is flooding."""

_log = structlog.get_logger()


class SchemaLog:
    """What was read so far of the schema log; used inside `async with`."""

    def __init__(self, access: KafkaAccess, *, limits: BusLimits | None = None) -> None:
        self._reader = Reader(access, limits=limits)
        self._schemas: dict[Fingerprint, str] = {}
        self._decoders: dict[Fingerprint, Decode] = {}
        self._next_offset: int | None = None
        self.decoders: Mapping[Fingerprint, Decode] = MappingProxyType(self._decoders)
        """Decoders of the foreign schemas that records were met of."""

    async def __aenter__(self) -> Self:
        await self._reader.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._reader.__aexit__(kind, error, trace)

    async def learn(self, fingerprint: Fingerprint) -> None:
        """Read the log to its end, so that `decoders` has this fingerprint.

        Raises RejectedError `unknown_fingerprint` when it is not there, and UnknownEventTypeError when it is
        there but this program is too old for it.
        """
        if fingerprint not in self._schemas:
            await self._read_on()
        if fingerprint not in self._schemas:
            raise RejectedError(
                f"expected the fingerprint of a known schema, got {fingerprint.hex()}, which is not in "
                f"{SCHEMAS_LOG} either: publish the writer's schema there first",
                reason="unknown_fingerprint",
            )
        if fingerprint not in self._decoders:
            self._decoders[fingerprint] = decoder_for(self._schemas[fingerprint])

    async def _read_on(self) -> None:
        if self._next_offset is None:
            self._next_offset = await self._reader.log_start(SCHEMAS_LOG, 0)
        async for record in self._reader.read_to_end(SCHEMAS_LOG, 0, self._next_offset):
            self._take(record)
            self._next_offset = record.offset + 1

    def _take(self, record: Record) -> None:
        if record.key in SCHEMAS:
            return
        schema_json = _schema_in(record)
        if record.key is None or schema_json is None or len(self._schemas) >= FOREIGN_SCHEMAS_MAX:
            _log.warning("schema_ignored", offset=record.offset)
            return
        self._schemas[record.key] = schema_json


def _schema_in(record: Record) -> str | None:
    """Give the schema of a record if it is one and the key is its fingerprint."""
    try:
        schema_json = (record.value or b"").decode()
        is_named_right = fingerprint_of(parsed(schema_json)) == record.key
    except (RejectedError, UnicodeDecodeError, RecursionError, SchemaParseException):
        return None
    return schema_json if is_named_right else None
