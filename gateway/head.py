"""Pure: what a request says in its headers, read in one pass.

Header names arrive in lower case, values as bytes (ASGI). Unknown `x-reef-*` headers are ignored.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from schemas.errors import RejectedError
from schemas.ids import Session

TAGS_MAX = 32
TAG_NAME_CHARS_MAX = 64
TAG_VALUE_BYTES_MAX = 1_024
_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
_TAG = b"x-reef-tag-"
_TRUE, _FALSE = frozenset({b"true", b"1", b"yes"}), frozenset({b"false", b"0", b"no", b""})


@dataclass(slots=True, kw_only=True)
class Head:
    """The headers that mean something to the gateway. Filled once, then only read."""

    token: bytes | None = None
    """Bearer token or `x-api-key`."""
    scenario: str | None = None
    """`x-reef-scenario`, in lower case."""
    session: Session | None = None
    """`x-reef-tag-session`; None when absent or empty."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """`x-reef-tag-*` by lower-case name, without the session."""
    is_opted_out: bool = False
    """`x-reef-no-train`."""
    is_recorded: bool = True
    """False under `x-reef-no-record`."""
    request_id: str | None = None
    """`x-request-id` as the client gave it; None when absent or unusable."""
    release_pin: str | None = None
    """`x-reef-release-id`."""
    content_length: int | None = None
    """Bytes announced; None when the body comes in chunks."""


def read_head(headers: Iterable[tuple[bytes, bytes]]) -> Head:
    """Read the headers. Raises RejectedError on a tag or flag that cannot be understood."""
    head = Head()
    for name, value in headers:
        if name in _PLAIN:
            _PLAIN[name](head, value)
        elif name.startswith(_TAG):
            _read_tag(head, name[len(_TAG) :], value)
    return head


def _read_bearer(head: Head, value: bytes) -> None:
    scheme, _, token = value.partition(b" ")
    if scheme.lower() == b"bearer":
        head.token = token.strip()


def _read_key(head: Head, value: bytes) -> None:
    if head.token is None:
        head.token = value


def _read_scenario(head: Head, value: bytes) -> None:
    name = value.decode("latin-1").strip().lower() or None  # an empty one counts as absent
    if head.scenario is not None and name != head.scenario:
        raise RejectedError(
            "expected one x-reef-scenario, got two that differ: send one", reason="bad_header"
        )
    head.scenario = name


def _read_no_train(head: Head, value: bytes) -> None:
    head.is_opted_out |= _flag("x-reef-no-train", value)  # said twice, the wish for less stands


def _read_no_record(head: Head, value: bytes) -> None:
    head.is_recorded &= not _flag("x-reef-no-record", value)


def _read_request_id(head: Head, value: bytes) -> None:
    if _REQUEST_ID.fullmatch(value):
        head.request_id = value.decode("ascii")


def _read_release(head: Head, value: bytes) -> None:
    head.release_pin = value.decode("latin-1").strip()


def _read_length(head: Head, value: bytes) -> None:
    if value.isdigit():
        head.content_length = int(value)


_PLAIN = {
    b"authorization": _read_bearer,
    b"x-api-key": _read_key,
    b"x-reef-scenario": _read_scenario,
    b"x-reef-no-train": _read_no_train,
    b"x-reef-no-record": _read_no_record,
    b"x-request-id": _read_request_id,
    b"x-reef-release-id": _read_release,
    b"content-length": _read_length,
}


def _flag(name: str, value: bytes) -> bool:
    word = value.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise RejectedError(
        f"expected {name} to be true or false, got {value[:40]!r}: a wish that is misread may not pass",
        reason="bad_header",
    )


def _read_tag(head: Head, raw_name: bytes, value: bytes) -> None:
    name = raw_name.decode("latin-1")
    if not name or len(name) > TAG_NAME_CHARS_MAX or len(value) > TAG_VALUE_BYTES_MAX:
        raise RejectedError(
            f"expected tags of 1 to {TAG_NAME_CHARS_MAX} characters with values up to {TAG_VALUE_BYTES_MAX} "
            f"bytes, got x-reef-tag-{name[:TAG_NAME_CHARS_MAX]} with {len(value)} bytes: shorten it",
            reason="bad_header",
        )
    text = _text(name, value)
    if name == "session":
        head.session = Session(text) if text else None
        return
    if len(head.tags) >= TAGS_MAX:
        raise RejectedError(f"expected at most {TAGS_MAX} tags, got more: send fewer", reason="bad_header")
    head.tags = {**head.tags, name: text}


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RejectedError(
            f"expected x-reef-tag-{name} in UTF-8, got other bytes: encode it", reason="bad_header"
        ) from error
