"""What is no event is refused with a reason and never a crash; what may not be written is not."""

import math
import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.codec import (
    BlobsNeededError,
    decode,
    encode,
    fingerprint,
)
from schemas.errors import RejectedError
from schemas.events import (
    EVENT_TYPES,
    Event,
)
from schemas.packed import Logprobs, Mask, Temperatures, TokenIds
from tests.builders import (
    BUILDERS,
    a_candidate_trained,
    a_choice,
    a_feedback,
    a_model_swapped,
    a_sampling,
    a_training_sample,
    an_experience_assembled,
    an_inference,
    pack_tokens,
)
from tests.strategies import LONG_MAX, LONG_MIN, events

HEADER_BYTES = 10
each_type = pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@calm
@given(events(), st.data())
def test_no_cut_event_is_read(event: Event, data: st.DataObject) -> None:
    whole = encode(event)
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(RejectedError) as caught:
        decode(whole[:length])
    assert caught.value.reason == "truncated"


@each_type
def test_no_event_is_read_from_any_of_its_beginnings(event_type: type[Event]) -> None:
    whole = encode(BUILDERS[event_type]())
    for length in range(len(whole)):
        with pytest.raises(RejectedError) as caught:
            decode(whole[:length])
        assert caught.value.reason == "truncated", length


@calm
@given(events(), st.binary(min_size=1, max_size=5))
def test_bytes_behind_an_event_are_refused(event: Event, more: bytes) -> None:
    with pytest.raises(RejectedError) as caught:
        decode(encode(event) + more)
    assert caught.value.reason == "trailing"


@calm
@given(events(), st.data())
def test_corrupt_bytes_are_refused_or_another_event_and_never_a_crash(
    event: Event, data: st.DataObject
) -> None:
    whole = bytearray(encode(event))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    try:
        back = decode(bytes(whole))
    except (RejectedError, BlobsNeededError):
        return
    assert decode(encode(back)) == back


@calm
@given(st.sampled_from(EVENT_TYPES), st.binary(max_size=200))
def test_noise_behind_a_good_header_is_never_a_crash(event_type: type[Event], noise: bytes) -> None:
    try:
        back = decode(b"\xc3\x01" + fingerprint(event_type) + noise)
    except (RejectedError, BlobsNeededError):
        return
    assert type(back) is event_type


def test_ten_thousand_damaged_calls_are_never_a_crash() -> None:
    whole, chance = encode(an_inference()), random.Random(1)
    num_refused = 0
    for _ in range(10_000):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 5)):
            damaged[chance.randrange(HEADER_BYTES, len(damaged))] = chance.randrange(256)
        try:
            decode(bytes(damaged))
        except (RejectedError, BlobsNeededError):
            num_refused += 1
    assert num_refused > 1_000


def test_an_unknown_fingerprint_is_refused_by_its_name() -> None:
    with pytest.raises(RejectedError, match=r"0102030405060708.*reef\.schemas\.v1") as caught:
        decode(b"\xc3\x01" + bytes(range(1, 9)) + b"body")
    assert caught.value.reason == "unknown_fingerprint"


@pytest.mark.parametrize(
    "data", [b"\xc3\x02" + bytes(8), b'{"score": 1.0}', b"\x00\x00\x00\x00\x07" + bytes(9)]
)
def test_other_encodings_are_told_from_unknown_schemas(data: bytes) -> None:
    with pytest.raises(RejectedError, match="C3 01") as caught:
        decode(data)
    assert caught.value.reason == "not_single_object"


NOT_FINITE = [math.nan, math.inf, -math.inf]
WITH_A_NUMBER: dict[str, Callable[[float], Event]] = {
    "score": lambda x: a_feedback(score=x),
    "reward": lambda x: an_experience_assembled(reward=x),
    "nested reward": lambda x: a_training_sample(experience=an_experience_assembled(reward=x)),
    "metric": lambda x: a_candidate_trained(metrics={"loss": x}),
    "first of a run": lambda x: an_inference(sampling=a_sampling(min_p=x)),
    "last of a run": lambda x: an_inference(sampling=a_sampling(repetition_penalty=x)),
    "milliseconds": lambda x: a_model_swapped(pause_ms=x),
    "logprob": lambda x: an_inference(choices=(a_choice(logprobs=Logprobs(f4(-1.0) + f4(x) + f4(-1.0))),)),
    "temperature": lambda x: an_experience_assembled(temperatures=Temperatures(f4(x))),
}


def f4(number: float) -> bytes:
    return struct.pack("<f", number)


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize("event_with", WITH_A_NUMBER.values(), ids=WITH_A_NUMBER.keys())
def test_what_is_not_finite_is_neither_written_nor_read(
    event_with: Callable[[float], Event], number: float
) -> None:
    with pytest.raises(RejectedError, match="finite") as caught:
        encode(event_with(number))
    assert caught.value.reason == "bad_value"
    mark = 1.2345678806304932  # a float of 32 bits that stands nowhere else
    data = encode(event_with(mark))
    smuggled = data.replace(f4(mark), f4(number)).replace(f8(mark), f8(number))
    assert smuggled != data
    with pytest.raises(RejectedError, match="finite") as caught:
        decode(smuggled)
    assert caught.value.reason == "bad_value"


def f8(number: float) -> bytes:
    return struct.pack("<d", number)


@given(st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), max_size=600))
def test_logprobs_are_written_exactly_when_all_are_finite(logprobs: list[float]) -> None:
    event = an_experience_assembled(logprobs=Logprobs(b"".join(f4(number) for number in logprobs)))
    if all(map(math.isfinite, logprobs)):
        assert decode(encode(event)) == event
    else:
        with pytest.raises(RejectedError, match="finite"):
            encode(event)


@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "changed",
    [
        lambda octets: an_inference(prompt_token_ids=TokenIds(octets)),
        lambda octets: an_experience_assembled(logprobs=Logprobs(octets)),
        lambda octets: an_experience_assembled(temperatures=Temperatures(octets)),
    ],
)
def test_a_cut_packed_array_is_not_written(changed: Callable[[bytes], Event], length: int) -> None:
    with pytest.raises(RejectedError, match="four bytes"):
        encode(changed(bytes(length)))


def test_a_mask_holds_zeros_and_ones_only() -> None:
    with pytest.raises(RejectedError, match="zeros and ones"):
        encode(an_experience_assembled(loss_mask=Mask(b"\0\1\2")))
    data = encode(an_experience_assembled(loss_mask=Mask(b"\0\1\1\0\1")))
    assert data.count(b"\0\1\1\0\1") == 1
    with pytest.raises(RejectedError, match="zeros and ones"):
        decode(data.replace(b"\0\1\1\0\1", b"\0\1\7\0\1"))


def test_a_packed_array_has_as_many_numbers_as_it_says() -> None:
    tokens = pack_tokens([7, 8, 9])
    data = encode(an_inference(prompt_token_ids=tokens))
    honest = bytes([0, 2 * 3, 2 * 12]) + tokens
    assert data.count(honest) == 1
    for claimed in (0, 2, 4, 12, 60):
        with pytest.raises(RejectedError) as caught:
            decode(data.replace(honest, bytes([0, 2 * claimed, 2 * 12]) + tokens))
        assert caught.value.reason == "bad_value"


@pytest.mark.parametrize("number", [LONG_MAX + 1, LONG_MIN - 1, 1 << 80])
def test_a_number_beyond_64_bits_is_refused(number: int) -> None:
    with pytest.raises(RejectedError, match="64 bits"):
        encode(a_feedback(reported_at_us=number))


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(RejectedError, match="surrogate"):
        encode(an_inference(model="\ud800"))


def test_text_that_is_no_utf8_is_refused() -> None:
    data = encode(an_inference(model="@@@@"))
    with pytest.raises(RejectedError, match="UTF-8") as caught:
        decode(data.replace(b"@@@@", b"\xff\xfe\xfd\xfc"))
    assert caught.value.reason == "bad_value"
