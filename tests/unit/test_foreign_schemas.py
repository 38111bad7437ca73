"""Older and newer writers are read; event types from the future stop the reader."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.claims import Blob
from schemas.codec import (
    SCHEMAS,
    BlobsNeededError,
    UnknownEventTypeError,
    decode,
    decoder_for,
    encode,
    encode_claim_checked,
    fingerprint,
    fingerprint_in,
)
from schemas.contract import newest_versions
from schemas.errors import RejectedError
from schemas.events import (
    EVENT_TYPES,
    Event,
    FeedbackReported,
    FeedbackSource,
    InferenceCompleted,
)
from schemas.ids import Sha256
from schemas.packed import JsonBytes
from tests.builders import (
    a_clock_ticked,
    a_feedback,
    an_inference,
)
from tests.strategies import events

HEADER_BYTES = 10
each_type = pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def schema_of(event: Event) -> Any:
    return json.loads(SCHEMAS[fingerprint(type(event))])


def uri_of(digest: Sha256) -> str:
    return f"memory:///{digest}"


def fetched(blobs: tuple[Blob, ...]) -> dict[Sha256, bytes]:
    return {blob.ref.sha256: blob.data for blob in blobs}


def other_version(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(newest_versions()["FeedbackReported"].json)
    change(schema)
    return schema


def written_with(schema: dict[str, Any], value: Mapping[str, Any]) -> bytes:
    body = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    fastavro.schemaless_writer(body, parsed, value)
    mark = bytes.fromhex(
        fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO")
    )
    return b"\xc3\x01" + mark + body.getvalue()


def value_of(event: Event) -> dict[str, Any]:
    value = fastavro.schemaless_reader(
        io.BytesIO(encode(event)[HEADER_BYTES:]),
        fastavro.parse_schema(schema_of(event)),
        return_record_name=True,
    )
    assert isinstance(value, dict)
    return value


def append_locale(schema: dict[str, Any]) -> None:
    schema["fields"].append({"name": "locale", "type": ["null", "string"], "default": None, "doc": "New."})


def append_symbol(schema: dict[str, Any]) -> None:
    next(f for f in schema["fields"] if f["name"] == "source")["type"]["symbols"].append("mail")


def drop_metadata(schema: dict[str, Any]) -> None:
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "metadata"]


def test_a_newer_writer_is_read_and_its_new_field_ignored() -> None:
    event = a_feedback(score=0.25, feedback=JsonBytes(b'"good"'))
    schema = other_version(append_locale)
    data = written_with(schema, value_of(event) | {"locale": "fr"})
    with pytest.raises(RejectedError) as caught:
        decode(data)
    assert caught.value.reason == "unknown_fingerprint"
    foreign = {fingerprint_in(data): decoder_for(json.dumps(schema))}
    assert decode(data, foreign=foreign) == event


def test_a_symbol_of_a_newer_writer_is_unspecified() -> None:
    schema = other_version(append_symbol)
    data = written_with(schema, value_of(a_feedback()) | {"source": "mail"})
    event = decode(data, foreign={fingerprint_in(data): decoder_for(json.dumps(schema))})
    assert event == a_feedback(source=FeedbackSource.UNSPECIFIED)


def test_an_older_writer_is_read_and_what_it_lacks_has_its_default() -> None:
    schema = other_version(drop_metadata)
    event = a_feedback(metadata=JsonBytes(b'{"turn":1}'))
    value = value_of(event)
    del value["metadata"]
    data = written_with(schema, value)
    assert decode(data, foreign={fingerprint_in(data): decoder_for(json.dumps(schema))}) == replace(
        event, metadata=None
    )


def test_records_of_our_own_schemas_are_read_beside_foreign_ones() -> None:
    foreign = {b"12345678": decoder_for(SCHEMAS[fingerprint(FeedbackReported)])}
    assert decode(encode(a_feedback()), foreign=foreign) == a_feedback()
    assert decode(encode(a_clock_ticked()), foreign=foreign) == a_clock_ticked()


@calm
@given(events())
def test_the_slow_road_of_foreign_schemas_gives_the_same_event(event: Event) -> None:
    assert decoder_for(SCHEMAS[fingerprint(type(event))])(encode(event), {}) == event


def test_a_foreign_record_needs_its_blobs_too() -> None:
    event = an_inference(request=JsonBytes(b"x" * 300_000))
    data, blobs = encode_claim_checked(event, uri_of=uri_of)
    read = decoder_for(SCHEMAS[fingerprint(InferenceCompleted)])
    with pytest.raises(BlobsNeededError):
        read(data, {})
    assert read(data, fetched(blobs)) == event


def test_cut_and_trailing_bytes_of_a_foreign_schema_are_refused() -> None:
    schema = other_version(append_locale)
    data = written_with(schema, value_of(a_feedback()) | {"locale": "fr"})
    foreign = {fingerprint_in(data): decoder_for(json.dumps(schema))}
    for length in range(HEADER_BYTES, len(data)):
        with pytest.raises(RejectedError) as caught:
            decode(data[:length], foreign=foreign)
        assert caught.value.reason == "truncated"
    with pytest.raises(RejectedError) as caught:
        decode(data + b"\0", foreign=foreign)
    assert caught.value.reason == "trailing"


@calm
@given(st.binary(max_size=200))
def test_noise_under_a_foreign_schema_is_never_a_crash(noise: bytes) -> None:
    read = decoder_for(SCHEMAS[fingerprint(FeedbackReported)])
    try:
        assert isinstance(read(bytes(HEADER_BYTES) + noise, {}), FeedbackReported)
    except (RejectedError, BlobsNeededError):
        return


def test_an_event_type_that_is_not_known_stops_the_reader() -> None:
    schema = {"type": "record", "name": "WeatherChanged", "namespace": "reef", "fields": []}
    with pytest.raises(UnknownEventTypeError, match=r"WeatherChanged.*upgrade streams first") as caught:
        decoder_for(json.dumps(schema))
    assert caught.value.reason == "unknown_event_type"


@pytest.mark.parametrize("text", ["", "{", "[]", '"long"', '{"type":"record"}'])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(RejectedError) as caught:
        decoder_for(text)
    assert caught.value.reason == "bad_schema"


def test_schemas_that_do_not_resolve_are_a_refusal_of_each_record() -> None:
    def retyped(schema: dict[str, Any]) -> None:
        next(f for f in schema["fields"] if f["name"] == "part").update(type="string")

    schema = other_version(retyped)
    data = written_with(schema, value_of(a_feedback()) | {"part": "zero"})
    with pytest.raises(RejectedError) as caught:
        decode(data, foreign={fingerprint_in(data): decoder_for(json.dumps(schema))})
    assert caught.value.reason == "bad_value"
