"""Receipts and derived ids have the forms of their RFCs, however they are computed here."""

import base64
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RejectedError
from schemas.ids import (
    RECEIPT_PREFIX,
    Receipt,
    Route,
    ScenarioName,
    derived_id,
    framed,
    mint_receipt,
    route_of,
    time_and_route_of,
)

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
RFC4648 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
NAMESPACE = UUID("6f1c1d0e-7a52-5d0b-9a55-0c1a4a3f5b21")


@given(st.integers(0, 2**48 - 1), st.binary(min_size=8, max_size=8), st.binary(min_size=6, max_size=6))
def test_a_receipt_tells_its_time_and_route(time_ms: int, route: bytes, nonce: bytes) -> None:
    home = Route(route.hex())
    receipt = mint_receipt(ScenarioName("demo"), home, time_ms=time_ms, nonce=nonce, key=b"k" * 16)
    assert time_and_route_of(receipt) == (time_ms, home) == (time_ms, route_of(receipt))
    text = receipt.removeprefix(RECEIPT_PREFIX).translate(str.maketrans(CROCKFORD, RFC4648))
    raw = base64.b32decode(text + "===")
    assert raw[:20] == time_ms.to_bytes(6, "big") + route + nonce


@pytest.mark.parametrize(
    "body", ["0" * 44, "0" * 46, "0" * 44 + "1", "0" * 44 + "U", "+" + "0" * 44, "0_" * 22 + "0"]
)
def test_what_is_not_the_one_spelling_of_a_receipt_is_refused(body: str) -> None:
    with pytest.raises(RejectedError, match="expected a receipt"):
        route_of(Receipt(RECEIPT_PREFIX + body))


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=4))
def test_a_derived_id_is_the_uuid5_of_its_framed_causes(kind: str, causes: list[str]) -> None:
    assert derived_id(kind, *causes) == str(uuid5(NAMESPACE, framed(kind, *causes).hex()))
