"""Events to bytes and back: what comes out went in, and other libraries read it."""

import io
import json
import random
from typing import Any

import avro.io
import avro.schema
import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.codec import (
    SCHEMAS,
    decode,
    encode,
    fingerprint,
    fingerprint_in,
)
from schemas.events import (
    EVENT_TYPES,
    Event,
    InferenceCompleted,
    ScenarioConfigured,
    TrainingSample,
)
from schemas.packed import JsonBytes, Logprobs, OriginalBytes, TokenIds
from tests.builders import (
    BUILDERS,
    a_candidate_trained,
    a_choice,
    a_feedback,
    an_event_rejected,
    an_inference,
)
from tests.strategies import LONG_MAX, LONG_MIN, events

HEADER_BYTES = 10
each_type = pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def schema_of(event: Event) -> Any:
    return json.loads(SCHEMAS[fingerprint(type(event))])


@calm
@given(events())
def test_every_event_comes_back_as_it_went_in(event: Event) -> None:
    data = encode(event)
    back = decode(data)
    assert back == event
    assert type(back) is type(event)
    assert encode(back) == data


@each_type
def test_every_event_type_has_a_builder_whose_event_comes_back(event_type: type[Event]) -> None:
    event = BUILDERS[event_type]()
    assert type(event) is event_type
    assert decode(encode(event)) == event
    assert BUILDERS[event_type]() == event


@each_type
def test_bytes_begin_with_the_marker_and_the_fingerprint(event_type: type[Event]) -> None:
    data = encode(BUILDERS[event_type]())
    assert data[:2] == b"\xc3\x01"
    assert data[2:10] == fingerprint(event_type) == fingerprint_in(data)


@calm
@given(events())
def test_fastavro_reads_our_bytes_and_writes_the_same(event: Event) -> None:
    """Two writers that agree on every byte; maps go in by name, as ours do."""
    schema, body = fastavro.parse_schema(schema_of(event)), encode(event)[HEADER_BYTES:]
    value = fastavro.schemaless_reader(io.BytesIO(body), schema, return_record_name=True)
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, value)
    assert written.getvalue() == body


@calm
@given(events())
def test_the_avro_project_reads_what_we_write(event: Event) -> None:
    schema = avro.schema.parse(json.dumps(schema_of(event)))
    body = io.BytesIO(encode(event)[HEADER_BYTES:])
    value = avro.io.DatumReader(schema).read(avro.io.BinaryDecoder(body))
    assert body.read() == b""
    ours = fastavro.schemaless_reader(
        io.BytesIO(encode(event)[HEADER_BYTES:]), fastavro.parse_schema(schema_of(event))
    )
    assert value == ours


LENGTHS = [0, 1, 62, 63, 64, 127, 128, 4_095, 4_096, 8_191, 8_192, 8_193, 40_000, 1 << 20, (1 << 20) + 3]


@pytest.mark.parametrize("length", LENGTHS)
def test_every_size_comes_back(length: int) -> None:
    event = an_inference(
        model="m" * length,
        session="é" * length,
        request=JsonBytes(b"r" * length),
        prompt_token_ids=TokenIds(bytes(4 * length)),
        choices=(a_choice(logprobs=Logprobs(bytes(4 * length)), finish_reason="f" * length),),
    )
    assert decode(encode(event)) == event
    rejected = an_event_rejected(value=OriginalBytes(b"\xff" * length))
    assert decode(encode(rejected)) == rejected


@pytest.mark.parametrize("count", [0, 1, 63, 64, 8_191, 8_192, 20_000])
def test_every_number_of_items_comes_back(count: int) -> None:
    event = a_feedback(references=tuple(f"rec_{number}" for number in range(count)))
    assert decode(encode(event)) == event
    trained = a_candidate_trained(metrics={f"m{number:06}": float(number) for number in range(count)})
    assert decode(encode(trained)) == trained


EDGES = [0, 1, -1, 63, 64, -64, -65, 8_191, 8_192, LONG_MIN, LONG_MAX] + [
    sign * ((1 << bits) + step)
    for bits in (31, 48, 49, 50, 54, 55, 56, 62)
    for step in (-1, 0, 1)
    for sign in (1, -1)
]


@pytest.mark.parametrize("number", EDGES)
def test_every_long_comes_back(number: int) -> None:
    event = a_feedback(reported_at_us=number, part=number)
    assert decode(encode(event)) == event
    schema = fastavro.parse_schema(schema_of(event))
    value: Any = fastavro.schemaless_reader(io.BytesIO(encode(event)[HEADER_BYTES:]), schema)
    assert value["reported_at_us"] == value["part"] == number


@pytest.mark.parametrize("text", ["", "a", "ß", "日本語", "🦀" * 40, "\0", "\u2028", "e\u0301", "é"])
def test_text_comes_back_to_the_letter(text: str) -> None:
    event = an_inference(model=text, session=text, tags={text: text})
    assert decode(encode(event)) == event


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=8), st.randoms())
def test_a_map_gives_the_same_bytes_in_whatever_order_it_was_filled(
    tags: dict[str, str], chance: random.Random
) -> None:
    names = list(tags)
    chance.shuffle(names)
    assert encode(an_inference(tags={name: tags[name] for name in names})) == encode(an_inference(tags=tags))


def varint(number: int) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, "long", number)
    return written.getvalue()


@pytest.mark.parametrize("sizes", [[3], [1, 2], [1, 1, 1], [0, 3], [2, 0, 1]])
@pytest.mark.parametrize("is_sized", [False, True])
def test_lists_and_maps_in_several_blocks_are_read(sizes: list[int], is_sized: bool) -> None:
    """Other languages write lists in blocks, with or without the block's size in bytes."""
    items = [b"\x02a", b"\x04bc", b"\x06def"]
    event = a_feedback(references=("a", "bc", "def"))
    one_block = varint(3) + b"".join(items) + b"\0"
    blocks, rest = b"", items
    for size in sizes:
        block, rest = b"".join(rest[:size]), rest[size:]
        blocks += (
            varint(-size) + varint(len(block)) + block
            if is_sized and size
            else b""
            if not size
            else varint(size) + block
        )
    data = encode(event)
    assert data.count(one_block) == 1
    assert decode(data.replace(one_block, blocks + b"\0")) == event


@given(st.sampled_from([TrainingSample, ScenarioConfigured, InferenceCompleted]))
def test_what_is_read_is_frozen_and_hashes_like_what_was_written(event_type: type[Event]) -> None:
    back = decode(encode(BUILDERS[event_type]()))
    with pytest.raises(AttributeError):
        back.scenario = "other"  # type: ignore[union-attr, misc]
    assert repr(back) == repr(BUILDERS[event_type]())
