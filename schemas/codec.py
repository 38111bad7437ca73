"""Pure: events to bytes and back: Avro single-object encoding, by the newest schema of each event type.

`C3 01`, 8 bytes of fingerprint, then the body. Whoever reads bytes of an unknown fingerprint looks its
schema up in `reef.schemas.v1` and asks for `decoder_for(schema)`. Not a store and not a broker: the caller
writes and fetches blobs.

Next: schemas/contract.py
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

from schemas.claims import (
    CLAIM_CHECK_THRESHOLD_BYTES,
    NO_BLOBS,
    Blob,
    BlobRef,
    BlobsNeededError,
    MovedBytes,
    largest_first,
)
from schemas.contract import Fingerprint, newest_versions, parsed, schema_versions
from schemas.decoders import REFUSALS, Decoder, decoder_of
from schemas.encoders import Encoder, encoder_of
from schemas.errors import RejectedError, UnavailableError
from schemas.events import EVENT_TYPES, Event
from schemas.forms import Form, Large, Many, Record, record_form
from schemas.ids import Sha256
from schemas.resolution import resolver_to
from schemas.varint import ref_bytes, truncated

__all__ = [
    "SCHEMAS",
    "Blob",
    "BlobRef",
    "BlobsNeededError",
    "MovedBytes",
    "UnknownEventTypeError",
    "decode",
    "decode_without_blobs",
    "decoder_for",
    "encode",
    "encode_claim_checked",
    "fingerprint",
    "fingerprint_in",
]

MARKER = b"\xc3\x01"
HEADER_BYTES = 10
NOTHING_MOVED: Mapping[bytes, BlobRef] = {}

Decode = Callable[[bytes, Mapping[Sha256, bytes]], Event]
"""Reads whole records of one fingerprint, header included."""


class UnknownEventTypeError(UnavailableError):
    """The schema is known, but this program is older than the event type."""

    def __init__(self, event: str) -> None:
        """Name the event type."""
        super().__init__(
            f"expected an event type that this program knows, got {event}: upgrade streams first",
            reason="unknown_event_type",
        )
        self.event = event


class _Schemas(Mapping[Fingerprint, str]):
    """Every released schema by its fingerprint, read when first asked for."""

    def __getitem__(self, key: Fingerprint) -> str:
        return _by_fingerprint()[key]

    def __iter__(self) -> Iterator[Fingerprint]:
        return iter(_by_fingerprint())

    def __len__(self) -> int:
        return len(_by_fingerprint())


SCHEMAS: Mapping[Fingerprint, str] = _Schemas()
"""Fingerprint to schema JSON, all versions: what a writer publishes into `reef.schemas.v1`."""


def encode(event: Event) -> bytes:
    """Write an event. Raises RejectedError on values that the contract does not allow, such as NaN."""
    return _encode(event, NOTHING_MOVED)


def decode(
    data: bytes,
    blobs: Mapping[Sha256, bytes] = NO_BLOBS,
    *,
    foreign: Mapping[Fingerprint, Decode] | None = None,
) -> Event:
    """Read an event; `foreign` are the decoders of schemas that are not in this package.

    Raises RejectedError (`truncated`, `trailing`, `unknown_fingerprint`, `bad_value`) and BlobsNeededError.
    """
    header = data[:HEADER_BYTES]
    if foreign and header[2:] in foreign and header.startswith(MARKER):
        return foreign[header[2:]](data, blobs)
    return _decode_body(_decoder_by_header(header), data, HEADER_BYTES, blobs)


def decode_without_blobs(data: bytes, *, foreign: Mapping[Fingerprint, Decode] | None = None) -> Event:
    """Read an event for the sake of its small fields: those that moved into blobs are `MovedBytes`.

    Raises RejectedError as `decode` does.
    """
    try:
        return decode(data, foreign=foreign)
    except BlobsNeededError as needed:
        return decode(data, {ref.sha256: MovedBytes(ref.size) for ref in needed.refs}, foreign=foreign)


def encode_claim_checked(
    event: Event,
    threshold_bytes: int = CLAIM_CHECK_THRESHOLD_BYTES,
    *,
    uri_of: Callable[[Sha256], str],
) -> tuple[bytes, tuple[Blob, ...]]:
    """Write an event; above the threshold its large fields move into blobs, which are to be written first."""
    data = encode(event)
    if len(data) <= threshold_bytes:
        return data, ()
    values = tuple(_large_values(_form(type(event).__name__), event))
    refs = {value: _ref_to(value, uri_of) for value in values}
    name_bytes = max((len(ref_bytes(ref)) for ref in refs.values()), default=0)
    moved = {value: refs[value] for value in largest_first(values, len(data) - threshold_bytes, name_bytes)}
    return _encode(event, moved), tuple(Blob(ref=ref, data=value) for value, ref in moved.items())


def fingerprint(event_type: type[Event]) -> Fingerprint:
    """Give the fingerprint under which this event type is written."""
    return newest_versions()[event_type.__name__].fingerprint


def fingerprint_in(data: bytes) -> Fingerprint:
    """Read the fingerprint of a record. Raises RejectedError if it is not single-object encoded."""
    if len(data) < HEADER_BYTES:
        raise RejectedError(
            f"expected {HEADER_BYTES} bytes or more, got {len(data)}: send the record whole",
            reason="truncated",
        )
    if not data.startswith(MARKER):
        raise RejectedError(
            f"expected Avro single-object encoding (C3 01), got {data[:2].hex()}: write the header",
            reason="not_single_object",
        )
    return data[2:HEADER_BYTES]


def decoder_for(schema_json: str) -> Decode:
    """Make a decoder for records written with another version's schema, older or newer than ours.

    They are resolved to our newest schema by Avro's rules. Raises UnknownEventTypeError if there is none, and
    RejectedError if this is no schema; a record that does not resolve is refused when it is read.
    """
    writer = parsed(schema_json)
    name = str(writer["name"]).rpartition(".")[2]
    if name not in _TYPES:
        raise UnknownEventTypeError(name)
    resolve = resolver_to(parsed(newest_versions()[name].json), writer)

    def decode_foreign(data: bytes, blobs: Mapping[Sha256, bytes] = NO_BLOBS) -> Event:
        body = resolve(data[HEADER_BYTES:])
        return _decode_body(_decoder(name), body, 0, blobs)

    return decode_foreign


_TYPES: Mapping[str, type[Event]] = {event_type.__name__: event_type for event_type in EVENT_TYPES}


@cache
def _by_fingerprint() -> Mapping[Fingerprint, str]:
    return {version.fingerprint: version.json for version in schema_versions()}


@cache
def _form(name: str) -> Record:
    return record_form(parsed(newest_versions()[name].json), _TYPES[name])


@cache
def _encoder(name: str) -> Encoder:
    return encoder_of(_form(name), MARKER + newest_versions()[name].fingerprint)


@cache
def _decoder(name: str) -> Decoder:
    return decoder_of(_form(name))


@cache
def _decoder_by_header(header: bytes) -> Decoder:
    written = fingerprint_in(header)
    for name, newest in newest_versions().items():
        if newest.fingerprint == written:
            return _decoder(name)
    if written in SCHEMAS:
        return _older(SCHEMAS[written])
    raise RejectedError(
        f"expected the fingerprint of a known schema, got {written.hex()}: publish it in reef.schemas.v1",
        reason="unknown_fingerprint",
    )


def _older(schema_json: str) -> Decoder:
    decode_older = decoder_for(schema_json)

    def decoder(
        data: bytes, _at: int, end: int, blobs: Mapping[Sha256, bytes], _missing: list[BlobRef]
    ) -> tuple[Event, int]:
        return decode_older(data, blobs), end

    return decoder


def _encode(event: Event, moved: Mapping[bytes, BlobRef]) -> bytes:
    try:
        return _encoder(type(event).__name__)(event, moved)
    except UnicodeEncodeError as error:
        raise RejectedError(
            f"expected Unicode text, got a lone surrogate at {error.start}: correct the writer",
            reason="bad_value",
        ) from error


def _decode_body(decoder: Decoder, data: bytes, at: int, blobs: Mapping[Sha256, bytes]) -> Event:
    missing: list[BlobRef] = []
    try:
        event, end = decoder(data, at, len(data), blobs, missing)
    except REFUSALS as error:
        raise _refusal(error) from error
    if end > len(data):
        truncated()
    if end != len(data):
        raise RejectedError(
            f"expected the end after {end} bytes, got {len(data) - end} more: send one record at a time",
            reason="trailing",
        )
    if missing:
        raise BlobsNeededError(tuple(missing))
    return event  # type: ignore[no-any-return]


def _refusal(error: Exception) -> RejectedError:
    if isinstance(error, IndexError | struct.error):
        return RejectedError("expected more bytes, got the end: send the record whole", reason="truncated")
    return RejectedError(
        "expected UTF-8 text and symbols of the schema, got other bytes: correct the writer",
        reason="bad_value",
    )


def _ref_to(value: bytes, uri_of: Callable[[Sha256], str]) -> BlobRef:
    digest = Sha256(sha256(value).hexdigest())
    return BlobRef(uri=uri_of(digest), sha256=digest, size=len(value))


def _large_values(form: Form, value: Any) -> Iterator[bytes]:
    match form:
        case Large() if value is not None:
            yield value
        case Many():
            for item in value:
                yield from _large_values(form.item, item)
        case Record():
            for name, field in form.fields:
                yield from _large_values(field, getattr(value, name))
