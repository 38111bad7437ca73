"""Pure: names: receipts that prove where they came from, routes that choose partitions, derived ids.

Not a source of time or randomness: both are arguments. Every digest is over *framed* parts, each being
its UTF-8 bytes behind their length as four big-endian bytes, so that no two lists of parts share a digest.
docs/kafka.md shows the same bytes for writers in other languages.

Next: schemas/codec.py
"""

import base64
import hmac
import re
from collections.abc import Sequence
from hashlib import sha1, sha256
from typing import NewType
from uuid import UUID

from schemas.errors import RejectedError

ScenarioName = NewType("ScenarioName", str)
"""A learning problem; `[a-z0-9][a-z0-9-]{1,54}[a-z0-9]`."""
Session = NewType("Session", str)
"""A client's name for one piece of work over several calls."""
Receipt = NewType("Receipt", str)
"""A call's name: `rec_` and 45 characters of Crockford's base32."""
Route = NewType("Route", str)
"""16 hex digits: the key that puts calls and their feedback into one partition."""
ReportId = NewType("ReportId", str)
"""A report's idempotency key within its scenario."""
ExperienceId = NewType("ExperienceId", str)
"""A uuid5 in canonical text."""
BatchId = NewType("BatchId", str)
"""A uuid5 in canonical text."""
CandidateId = NewType("CandidateId", str)
"""A uuid5 in canonical text."""
SwapId = NewType("SwapId", str)
"""A uuid5 in canonical text."""
CommandId = NewType("CommandId", str)
"""An operator's idempotency key."""
ReleaseId = NewType("ReleaseId", str)
"""A lakeFS commit id on `main`."""
GatewayId = NewType("GatewayId", str)
"""Names one gateway of a deployment."""
Sha256 = NewType("Sha256", str)
"""Lower-case hex."""

RECEIPT_PREFIX = "rec_"
RECEIPT_KEY_BYTES_MIN = 16

_TIME_BYTES, _ROUTE_BYTES, _NONCE_BYTES, _PROOF_BYTES = 6, 8, 6, 8
_SIGNED_BYTES = _TIME_BYTES + _ROUTE_BYTES + _NONCE_BYTES
_RECEIPT_BYTES = _SIGNED_BYTES + _PROOF_BYTES
_BODY_CHARS = 45
SEQ_CHARS_MAX = 9
"""A number this short is that of a release, not the beginning of an id."""
_RFC4648 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_CROCKFORD = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TO_CROCKFORD = bytes.maketrans(_RFC4648, _CROCKFORD)
_TO_DIGITS = bytes.maketrans(_CROCKFORD, b"0123456789abcdefghijklmnopqrstuv")
"""To the digits that `int(…, 32)` reads: receipts are read at every event, so one conversion does it."""
_BODY = re.compile(rb"[0-9A-HJKMNP-TV-Z]{45}")
_SCENARIO = re.compile(r"[a-z0-9][a-z0-9-]{1,54}[a-z0-9]")
_NAMESPACE = UUID("6f1c1d0e-7a52-5d0b-9a55-0c1a4a3f5b21")


def scenario_name(text: str) -> ScenarioName:
    """Read a scenario's name, compared in lower case. Raises RejectedError."""
    name = text.lower()
    if not _SCENARIO.fullmatch(name):
        raise RejectedError(
            f"expected a scenario name of 3 to 56 letters a-z, digits and inner hyphens, got {text[:80]!r}: "
            "rename it",
            reason="bad_scenario_name",
        )
    return ScenarioName(name)


def framed(*parts: str) -> bytes:
    """Join parts so that no two lists of parts give the same bytes."""
    encoded = [part.encode() for part in parts]
    return b"".join([len(part).to_bytes(4, "big") + part for part in encoded])


def route_of_session(scenario: ScenarioName, session: Session) -> Route:
    """Route the calls of a tagged session."""
    return _route(scenario, session)


def route_of_conversation(scenario: ScenarioName, first_system: str, first_user: str) -> Route:
    """Route an untagged call, so that the turns of one conversation share a route."""
    return _route(scenario, first_system, first_user)


def route_of_import(scenario: ScenarioName, imported_id: str) -> Route:
    """Route an imported call by the client's own id."""
    return _route(scenario, imported_id)


def _route(*parts: str) -> Route:
    return Route(sha256(framed(*parts)).digest()[:_ROUTE_BYTES].hex())


def mint_receipt(scenario: ScenarioName, route: Route, *, time_ms: int, nonce: bytes, key: bytes) -> Receipt:
    """Name a call before it is made.

    `time_ms` is milliseconds UTC, `nonce` 6 random bytes, `key` the newest key. Receipts sort by time.
    """
    assert len(nonce) == _NONCE_BYTES, len(nonce)
    signed = time_ms.to_bytes(_TIME_BYTES, "big") + bytes.fromhex(route) + nonce
    body = base64.b32encode(signed + _proof(scenario, signed, key)).translate(_TO_CROCKFORD)[:_BODY_CHARS]
    return Receipt(RECEIPT_PREFIX + body.decode("ascii"))


def verify_receipt(text: str, scenario: ScenarioName, keys: Sequence[bytes]) -> Receipt:
    """Accept a receipt issued for this scenario under any of the keys.

    Raises RejectedError, which never says whether the receipt is forged or of another scenario.
    """
    raw = _receipt_bytes(text)
    signed, proof = raw[:_SIGNED_BYTES], raw[_SIGNED_BYTES:]
    if not any([hmac.compare_digest(proof, _proof(scenario, signed, key)) for key in keys]):
        raise _unknown_receipt()
    return Receipt(text)


def release_seq_named(word: str) -> int | None:
    """Read a release's number as people write it, `7` or `r7`; None when the word is no such number."""
    number = word.removeprefix("r")
    return int(number) if number.isdecimal() and len(number) <= SEQ_CHARS_MAX else None


def is_receipt(text: str) -> bool:
    """Whether the text has a receipt's form; nothing is proved by it."""
    try:
        _receipt_bytes(text)
    except RejectedError:
        return False
    return True


def route_of(receipt: Receipt) -> Route:
    """Read the route: feedback finds its partition from the receipt alone. Raises RejectedError."""
    return Route(_receipt_bytes(receipt)[_TIME_BYTES : _TIME_BYTES + _ROUTE_BYTES].hex())


def time_and_route_of(receipt: Receipt) -> tuple[int, Route]:
    """Read when the receipt was made, in milliseconds UTC, and its route. Raises RejectedError."""
    raw = _receipt_bytes(receipt)
    route_end = _TIME_BYTES + _ROUTE_BYTES
    return int.from_bytes(raw[:_TIME_BYTES], "big"), Route(raw[_TIME_BYTES:route_end].hex())


def _proof(scenario: ScenarioName, signed: bytes, key: bytes) -> bytes:
    return hmac.digest(key, framed(scenario) + signed, "sha256")[:_PROOF_BYTES]


def _receipt_bytes(text: str) -> bytes:
    body = text[len(RECEIPT_PREFIX) :].encode("utf-8", "replace")
    if not text.startswith(RECEIPT_PREFIX) or not _BODY.fullmatch(body):
        raise _unknown_receipt()
    number = int(body.translate(_TO_DIGITS), 32)
    if number & 1:
        raise _unknown_receipt()  # the spare bit was set: only one spelling of a receipt counts
    return (number >> 1).to_bytes(_RECEIPT_BYTES, "big")


def _unknown_receipt() -> RejectedError:
    return RejectedError(
        "expected a receipt issued for this scenario (rec_ and 45 characters), got another text: "
        "quote x-reef-agent-record-id of the answer",
        reason="unknown_receipt",
    )


def derived_id(kind: str, *causes: str) -> str:
    """Derive an id from its causes (RFC 9562, version 5): a replay states the same fact, not a second one."""
    named = sha1(_NAMESPACE.bytes + framed(kind, *causes).hex().encode(), usedforsecurity=False)
    digest = bytearray(named.digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50  # version 5, and the variant of RFC 9562, as uuid5 sets them
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
