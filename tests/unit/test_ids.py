"""Receipts prove where they came from; routes and derived ids are the same for ever."""

import hmac
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RejectedError
from schemas.ids import (
    RECEIPT_PREFIX,
    Receipt,
    Route,
    ScenarioName,
    Session,
    derived_id,
    framed,
    is_receipt,
    mint_receipt,
    route_of,
    route_of_conversation,
    route_of_import,
    route_of_session,
    scenario_name,
    time_and_route_of,
    verify_receipt,
)

KEY, OLDER_KEY, FOREIGN_KEY = b"k" * 32, b"o" * 32, b"f" * 32
SCENARIO, OTHER_SCENARIO = ScenarioName("capitals"), ScenarioName("rivers")
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BODY_BYTES = 28
BODY_CHARS = 45

times_ms = st.integers(0, (1 << 48) - 1)
nonces = st.binary(min_size=6, max_size=6)
routes = st.binary(min_size=8, max_size=8).map(lambda raw: Route(raw.hex()))
names = st.from_regex(r"[a-z0-9][a-z0-9-]{1,54}[a-z0-9]", fullmatch=True).map(ScenarioName)


def mint(time_ms: int = 1_790_000_000_000, nonce: bytes = b"nonce!", key: bytes = KEY) -> Receipt:
    return mint_receipt(
        SCENARIO, route_of_session(SCENARIO, Session("s")), time_ms=time_ms, nonce=nonce, key=key
    )


def spelled(raw: bytes) -> str:
    """Write 28 bytes as a receipt, with the base of 32 done by arithmetic."""
    number = int.from_bytes(raw, "big") << (BODY_CHARS * 5 - BODY_BYTES * 8)
    digits = [CROCKFORD[number >> 5 * place & 31] for place in reversed(range(BODY_CHARS))]
    return RECEIPT_PREFIX + "".join(digits)


def bytes_of(receipt: str) -> bytes:
    number = 0
    for char in receipt.removeprefix(RECEIPT_PREFIX):
        number = number << 5 | CROCKFORD.index(char)
    return (number >> 1).to_bytes(BODY_BYTES, "big")


@given(names, routes, times_ms, nonces)
def test_a_receipt_is_accepted_where_it_was_issued_and_tells_its_route_and_time(
    scenario: ScenarioName, route: Route, time_ms: int, nonce: bytes
) -> None:
    receipt = mint_receipt(scenario, route, time_ms=time_ms, nonce=nonce, key=KEY)
    assert verify_receipt(receipt, scenario, [KEY]) == receipt
    assert is_receipt(receipt)
    assert route_of(receipt) == route
    assert time_and_route_of(receipt) == (time_ms, route)
    assert len(receipt) <= 64


@given(names, routes, times_ms, nonces)
def test_a_receipt_is_spelled_as_documented(
    scenario: ScenarioName, route: Route, time_ms: int, nonce: bytes
) -> None:
    signed = time_ms.to_bytes(6, "big") + bytes.fromhex(route) + nonce
    framed_scenario = len(scenario).to_bytes(4, "big") + scenario.encode()
    proof = hmac.new(KEY, framed_scenario + signed, sha256).digest()[:8]
    assert mint_receipt(scenario, route, time_ms=time_ms, nonce=nonce, key=KEY) == spelled(signed + proof)


@pytest.mark.parametrize("bit", range(BODY_BYTES * 8))
def test_a_receipt_with_one_bit_changed_is_refused(bit: int) -> None:
    raw = bytearray(bytes_of(mint()))
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RejectedError) as caught:
        verify_receipt(spelled(bytes(raw)), SCENARIO, [KEY])
    assert caught.value.reason == "unknown_receipt"


@given(times_ms, nonces, st.integers(0, BODY_BYTES * 8 - 1))
def test_any_receipt_with_any_bit_changed_is_refused(time_ms: int, nonce: bytes, bit: int) -> None:
    raw = bytearray(bytes_of(mint(time_ms, nonce)))
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RejectedError):
        verify_receipt(spelled(bytes(raw)), SCENARIO, [KEY])


@pytest.mark.parametrize("at", range(BODY_CHARS))
def test_a_receipt_with_one_letter_changed_is_refused(at: int) -> None:
    body = mint().removeprefix(RECEIPT_PREFIX)
    for letter in CROCKFORD:
        if letter != body[at]:
            with pytest.raises(RejectedError):
                verify_receipt(RECEIPT_PREFIX + body[:at] + letter + body[at + 1 :], SCENARIO, [KEY])


@given(names, names)
def test_a_receipt_of_another_scenario_is_refused_in_the_same_words_as_a_forged_one(
    mine: ScenarioName, other: ScenarioName
) -> None:
    receipt = mint_receipt(mine, Route("0" * 16), time_ms=1, nonce=b"nonce!", key=KEY)
    if mine == other:
        return
    with pytest.raises(RejectedError) as foreign:
        verify_receipt(receipt, other, [KEY])
    with pytest.raises(RejectedError) as forged:
        verify_receipt(receipt, mine, [FOREIGN_KEY])
    assert (str(foreign.value), foreign.value.reason) == (str(forged.value), forged.value.reason)


def test_only_one_spelling_of_a_receipt_counts() -> None:
    minted = (mint(nonce=number.to_bytes(6, "big")) for number in range(1_000))
    receipt = next(receipt for receipt in minted if "1" in receipt and "0" in receipt)
    body = receipt.removeprefix(RECEIPT_PREFIX)
    spare_bit = CROCKFORD[CROCKFORD.index(body[-1]) ^ 1]
    others = [
        RECEIPT_PREFIX + body[:-1] + spare_bit,
        RECEIPT_PREFIX + body.lower(),
        RECEIPT_PREFIX + body.replace("0", "O"),
        RECEIPT_PREFIX + body.replace("1", "I"),
        RECEIPT_PREFIX + body + "0",
        RECEIPT_PREFIX + body[:-1],
        RECEIPT_PREFIX + body + "=",
        RECEIPT_PREFIX.upper() + body,
        " " + receipt,
        receipt + "\n",
        body,
        "",
        RECEIPT_PREFIX,
        RECEIPT_PREFIX + "U" * BODY_CHARS,
        RECEIPT_PREFIX + "é" * BODY_CHARS,
        RECEIPT_PREFIX + "\ud800" * BODY_CHARS,
    ]
    for other in others:
        assert not is_receipt(other)
        with pytest.raises(RejectedError):
            verify_receipt(other, SCENARIO, [KEY])


@given(st.text(max_size=60))
def test_no_text_that_is_no_receipt_has_a_receipts_form(text: str) -> None:
    assert not is_receipt(text)
    with pytest.raises(RejectedError):
        route_of(Receipt(text))


@given(st.lists(st.tuples(times_ms, nonces), min_size=2, max_size=20))
def test_receipts_sort_by_time(made: list[tuple[int, bytes]]) -> None:
    receipts = [(mint(time_ms, nonce), time_ms) for time_ms, nonce in made]
    assert [time_ms for _, time_ms in sorted(receipts)] == sorted(time_ms for time_ms, _ in made)


def test_keys_rotate_the_newest_signs_and_the_older_are_still_accepted() -> None:
    older, newer = mint(key=OLDER_KEY), mint(key=KEY)
    for keys in ([KEY, OLDER_KEY], [OLDER_KEY, KEY]):
        assert verify_receipt(older, SCENARIO, keys) == older
        assert verify_receipt(newer, SCENARIO, keys) == newer
    for receipt, keys in ((older, [KEY]), (newer, [OLDER_KEY]), (newer, [])):
        with pytest.raises(RejectedError):
            verify_receipt(receipt, SCENARIO, keys)


@given(st.lists(st.text(max_size=12), max_size=5), st.lists(st.text(max_size=12), max_size=5))
def test_no_two_lists_of_parts_share_their_frame(mine: list[str], others: list[str]) -> None:
    assert (framed(*mine) == framed(*others)) == (mine == others)


def test_routes_are_eight_bytes_of_the_digest_of_framed_parts() -> None:
    digest = sha256(b"\0\0\0\x08capitals\0\0\0\x01s").hexdigest()
    assert route_of_session(SCENARIO, Session("s")) == digest[:16]
    digest = sha256(b"\0\0\0\x08capitals\0\0\0\x02Be\0\0\0\x02Hi").hexdigest()
    assert route_of_conversation(SCENARIO, "Be", "Hi") == digest[:16]
    assert route_of_import(SCENARIO, "mine") == route_of_session(SCENARIO, Session("mine"))


@given(st.text(max_size=20), st.text(max_size=20))
def test_conversations_that_begin_otherwise_or_elsewhere_have_other_routes(system: str, user: str) -> None:
    here = route_of_conversation(SCENARIO, system, user)
    assert here == route_of_conversation(SCENARIO, system, user)
    assert here != route_of_conversation(OTHER_SCENARIO, system, user)
    assert here != route_of_conversation(SCENARIO, system + "x", user)
    assert here != route_of_session(SCENARIO, Session(system + user))


def test_derived_ids_are_the_same_for_ever() -> None:
    assert derived_id("experience", "a", "b") == "a553e3e9-d863-5c4d-8dd7-39bcf49d70ba"


@given(st.lists(st.text(max_size=12), max_size=4), st.lists(st.text(max_size=12), max_size=4))
def test_derived_ids_are_equal_exactly_when_their_causes_are(mine: list[str], others: list[str]) -> None:
    assert (derived_id("batch", *mine) == derived_id("batch", *others)) == (mine == others)
    assert derived_id("batch", *mine) != derived_id("sample", *mine)


@given(names)
def test_a_scenario_name_is_compared_in_lower_case(name: ScenarioName) -> None:
    assert scenario_name(name) == name
    assert scenario_name(name.upper()) == name


@pytest.mark.parametrize(
    "text", ["", "ab", "a" * 57, "-abc", "abc-", "a_b", "a.b", "a/b", "äbc", "a b", "abc\n", "ÅBC"]
)
def test_a_bad_scenario_name_is_refused(text: str) -> None:
    with pytest.raises(RejectedError, match="rename it") as caught:
        scenario_name(text)
    assert caught.value.reason == "bad_scenario_name"
