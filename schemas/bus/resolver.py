"""Shell: a record becomes an event: blobs are fetched, schemas of other versions are looked up.

Not a judge: an event that means nothing where it stands is for the reader to refuse.
"""

from typing import Protocol

from schemas.bus.schema_log import SchemaLog
from schemas.codec import BlobRef, BlobsNeededError, decode, fingerprint_in
from schemas.errors import RejectedError
from schemas.events import Event
from schemas.ids import Sha256
from schemas.records import Record
from schemas.topics import TOPICS


class BlobReader(Protocol):
    """What a resolver needs of a blob store."""

    async def get(self, ref: BlobRef) -> bytes:
        """Fetch and verify bytes. Raises RejectedError when they are gone or others, UnavailableError."""


class Resolver:
    """Reads what any version of any writer wrote, while the schema log and the blob store answer."""

    def __init__(self, schema_log: SchemaLog, blobs: BlobReader) -> None:
        self._schema_log, self._blobs = schema_log, blobs

    async def resolve(self, record: Record) -> Event:
        """Decode a record.

        Raises RejectedError when these bytes will never be an event of this topic (`rejection` makes it an
        EventRejected); UnavailableError when something must come first: the blob store, or an
        upgrade of this program (`unknown_event_type`).
        """
        if record.value is None:
            raise RejectedError(
                "expected an event, got a tombstone: write to another topic", reason="tombstone"
            )
        event = await self._decoded(record.value)
        if record.topic in TOPICS and type(event) not in TOPICS[record.topic].events:
            raise RejectedError(
                f"expected an event of {record.topic}, got {type(event).__name__}: write it to its own topic",
                reason="foreign_event",
            )
        return event

    async def _decoded(self, value: bytes) -> Event:
        try:
            return decode(value, foreign=self._schema_log.decoders)
        except BlobsNeededError as needed:
            refs = needed.refs
        except RejectedError as error:
            if error.reason != "unknown_fingerprint":
                raise
            await self._schema_log.learn(fingerprint_in(value))
            return await self._decoded(value)
        blobs: dict[Sha256, bytes] = {ref.sha256: await self._blobs.get(ref) for ref in refs}
        return decode(value, blobs, foreign=self._schema_log.decoders)
