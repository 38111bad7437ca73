"""Shell: a server protocol that refuses in JSON what is no HTTP, and heads that are too long.

Not the refusing of requests that can be read: gateway/app.py does that.
"""

import os

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.errors import error_body, problem_of
from gateway.joined_writes import JoinedWritesProtocol
from schemas.errors import RejectedError

HEAD_BYTES_MAX = 65_536
"""Of a request's line and headers."""
_MALFORMED = RejectedError(
    "expected a request in HTTP/1.1, got other bytes: see what stands between your client and the gateway",
    reason="bad_http",
)
_TOO_LONG = RejectedError(
    f"expected a request line and headers of at most {HEAD_BYTES_MAX} bytes, got more: send less of them",
    reason="head_too_large",
)


class JsonRefusalsProtocol(JoinedWritesProtocol):
    """The joining protocol, with a limit to heads, and JSON where the server answers by itself."""

    url = b""
    _is_in_head = False
    _num_fed_bytes = 0
    _begun_at_bytes = 0
    _why = _MALFORMED

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that only grows is refused before its end."""
        self._num_fed_bytes += len(data)
        super().data_received(data)
        if not self._is_in_head:
            self._num_fed_bytes = 0
        elif self._num_fed_bytes - self._begun_at_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._why = _TOO_LONG
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Begin a head, somewhere in what was fed last."""
        self._is_in_head = True
        self._begun_at_bytes = self._num_fed_bytes
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End a head. Raises RejectedError, which the parser makes one of its own errors."""
        self._is_in_head = False
        if self._num_fed_bytes > HEAD_BYTES_MAX and self._num_head_bytes() > HEAD_BYTES_MAX:
            self._why = _TOO_LONG
            raise _TOO_LONG
        super().on_headers_complete()

    def _num_head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def send_400_response(self, msg: str) -> None:
        """Refuse in the words of the API that was called, as far as that is known; then close."""
        is_answering = self.cycle is not None and self.cycle.response_started
        if not is_answering or self.cycle.response_complete:  # inside another answer it would be misread
            self.transport.write(self._refusal())
        self.transport.close()

    def _refusal(self) -> bytes:
        problem = problem_of(self._why)
        body = error_body(problem, self.url.decode("latin-1"))
        headers = (
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", os.urandom(16).hex().encode("ascii")),
            (b"connection", b"close"),
        )
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        return STATUS_LINE[problem.status] + lines + b"\r\n" + body
