"""Lines about records: whatever people wrote is hidden unless asked for, and no event breaks them."""

import json
from typing import Any

import pytest

from deploy.event_lines import LINE_CHARS_MAX, key_text, record_line, record_object
from schemas.codec import decode_without_blobs, encode, encode_claim_checked
from schemas.errors import RejectedError
from schemas.events import EVENT_TYPES, Event
from schemas.packed import JsonBytes
from schemas.records import Record
from tests.builders import (
    BUILDERS,
    a_feedback_reported,
    a_scenario_configured,
    an_event_rejected,
    an_experience_assembled,
    an_inference_completed,
    pack_logprobs,
    pack_mask,
    pack_tokens,
)

SECRET = "the text nobody may find"


def a_record(value: bytes | None = b"bytes", key: bytes | None = b"key") -> Record:
    return Record(
        topic="reef.interactions.v1",
        partition=3,
        offset=7,
        key=key,
        value=value,
        headers=(),
        timestamp_us=5,
    )


def shown(event: Event, *, with_text: bool) -> Any:
    made = record_object(a_record(), event, with_text=with_text)
    return json.loads(json.dumps(made))["event"]


@pytest.mark.parametrize("event_type", EVENT_TYPES)
@pytest.mark.parametrize("with_text", [True, False])
def test_every_event_has_an_object_and_a_line(event_type: type[Event], with_text: bool) -> None:
    event = decode_without_blobs(encode(BUILDERS[event_type]()))
    made = record_object(a_record(), event, with_text=with_text)
    assert json.loads(json.dumps(made))["type"] == event_type.__name__
    line = record_line(a_record(), event, when="now", with_text=with_text)
    assert line.startswith(f"3@7  now  {event_type.__name__}")
    assert "\n" not in line


@pytest.mark.parametrize(
    "event",
    [
        an_inference_completed(
            request=JsonBytes(f'"{SECRET}"'.encode()), response=JsonBytes(SECRET.encode())
        ),
        a_feedback_reported(feedback=JsonBytes(f'"{SECRET}"'.encode())),
        a_feedback_reported(metadata=JsonBytes(f'{{"a":"{SECRET}"}}'.encode())),
        an_event_rejected(value=SECRET.encode()),
    ],
)
def test_what_people_wrote_is_shown_only_when_asked_for(event: Event) -> None:
    assert SECRET not in json.dumps(shown(event, with_text=False))
    assert SECRET not in record_line(a_record(), event, when="now", with_text=False)
    assert SECRET in json.dumps(shown(event, with_text=True))


def test_token_arrays_are_hidden_or_whole() -> None:
    call = an_inference_completed()
    assert shown(call, with_text=False)["prompt_token_ids"] == {"hidden_bytes": 16}
    whole = shown(call, with_text=True)
    assert whole["prompt_token_ids"] == [1, 2, 3, 4]
    assert whole["choices"][0]["logprobs"] == [-0.5, -0.25, -2.0]


def test_what_moved_into_a_blob_is_hidden_with_its_true_size() -> None:
    event = an_inference_completed(request=JsonBytes(b"x" * 1000))
    data, blobs = encode_claim_checked(event, 500, uri_of=lambda digest: f"file:///{digest}")
    assert blobs
    assert shown(decode_without_blobs(data), with_text=False)["request"] == {"hidden_bytes": 1000}


def test_all_arrays_of_a_large_experience_may_have_moved() -> None:
    long = [1] * 1000
    event = an_experience_assembled(
        token_ids=pack_tokens(long), loss_mask=pack_mask(long), logprobs=pack_logprobs(long)
    )
    data, blobs = encode_claim_checked(event, 100, uri_of=lambda digest: f"file:///{digest}")
    assert len(blobs) >= 3
    told = shown(decode_without_blobs(data), with_text=False)
    assert [told[name] for name in ("token_ids", "loss_mask")] == [
        {"hidden_bytes": 4000},
        {"hidden_bytes": 1000},
    ]


def test_the_options_of_a_scenario_are_nobodys_text() -> None:
    assert shown(a_scenario_configured(), with_text=False)["options"] == {"recipe": {}, "streams": {}}


def test_bytes_that_are_no_event_are_told_with_the_reason() -> None:
    error = RejectedError("expected more bytes", reason="truncated")
    made = record_object(a_record(SECRET.encode()), error, with_text=False)
    assert (made["reason"], made["num_bytes"]) == ("truncated", len(SECRET))
    assert SECRET not in json.dumps(made)
    line = record_line(a_record(SECRET.encode()), error, when="now", with_text=False)
    assert line == f"3@7  now  no event (truncated), {len(SECRET)} bytes, key key"
    assert record_object(a_record(b"\xff"), error, with_text=True)["value"] == {"hex": "ff"}


def test_a_key_is_text_or_hex_and_a_value_is_cut_on_a_line() -> None:
    assert [key_text(key) for key in (b"a/b", b"\x00\xff", b"")] == ["a/b", "00ff", ""]
    call = an_inference_completed(model="m" * 1000)
    line = record_line(a_record(), call, when="now", with_text=False)
    assert max(len(word) for word in line.split()) <= LINE_CHARS_MAX + len("model=")
