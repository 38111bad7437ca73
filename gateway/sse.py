"""Pure: server-sent events from bytes, however the network cut them (WHATWG HTML, 9.2).

Only the data of an event matters here: names, ids and comments are read over.
"""

from schemas.errors import UnavailableError

EVENT_BYTES_MAX = 32 * 1_048_576
DONE = b"[DONE]"


class SseParser:
    """Bytes in, the data of each finished event out."""

    __slots__ = ("_follows_return", "_tail")

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._tail = bytearray()
        self._follows_return = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take what arrived; give the data of every event that ended in it. Raises UnavailableError."""
        if self._follows_return or b"\r" in data:
            data = self._with_plain_line_ends(data)
        tail = self._tail
        searched = max(0, len(tail) - 1)
        tail += data
        end = tail.rfind(b"\n\n", searched)
        if end < 0:
            return self._nothing_yet()
        events = bytes(tail[:end]).split(b"\n\n")
        del tail[: end + 2]
        return [found for event in events if (found := _data(event)) is not None]

    def _with_plain_line_ends(self, data: bytes) -> bytes:
        if self._follows_return:
            data = data.removeprefix(b"\n") if data else data
        self._follows_return = data.endswith(b"\r") or (self._follows_return and not data)
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _nothing_yet(self) -> list[bytes]:
        if len(self._tail) > EVENT_BYTES_MAX:
            raise UnavailableError(
                f"expected events of at most {EVENT_BYTES_MAX} bytes from the engine, got a longer one: "
                "see to the engine",
                reason="engine_nonsense",
            )
        return []


def _data(event: bytes) -> bytes | None:
    """Read the data of one event; None when it has none."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
