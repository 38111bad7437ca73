"""Shell: questions and wishes to a running gateway over HTTP, each within a deadline; refusals in its words.

Not a client for applications: those use OpenAI's, Anthropic's or Reef's.
"""

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError, words_of

CONNECT_S_MAX = 5.0
ANSWER_S_MAX = 15.0
"""Of a question."""
BODY_BYTES_MAX = 64 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayClient:
    """One gateway; each question opens a connection of its own."""

    url: str
    """Scheme, host and port."""
    token: SecretStr | None
    """Sent with everything, if there is one."""

    def get(self, path: str, *, scenario: str | None = None) -> Answer:
        """Ask. Raises UnavailableError, RejectedError."""
        return self._answer("GET", path, b"", _scenario_header(scenario), ANSWER_S_MAX)

    def post(
        self, path: str, body: Mapping[str, Any], *, scenario: str | None = None, answer_s_max: float
    ) -> Answer:
        """Wish. Raises UnavailableError, RejectedError, ConflictError."""
        headers = {"content-type": "application/json", **_scenario_header(scenario)}
        return self._answer("POST", path, json.dumps(body).encode(), headers, answer_s_max)

    def _answer(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], answer_s_max: float
    ) -> Answer:
        base, connection = self._connection()
        if self.token is not None:
            headers = {**headers, "authorization": f"Bearer {self.token.get_secret_value()}"}
        ends_s = time.monotonic() + CONNECT_S_MAX + answer_s_max
        try:
            connection.connect()
            connection.sock.settimeout(answer_s_max)
            connection.request(method, base + path, body, dict(headers))
            answer = connection.getresponse()
            text = _read(answer, ends_s)
        except TimeoutError as error:
            raise UnavailableError(
                f"expected {self.url} to answer {method} {path} within {answer_s_max:g} s, got nothing: "
                "look at the gateway's log",
                reason="gateway_slow",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(
                f"expected a gateway at {self.url}, got {words_of(error) or type(error).__name__}: start one "
                "with `reef serve`, or name another with --url",
                reason="gateway_away",
            ) from error
        finally:
            connection.close()
        return _told(answer.status, text, self.url)

    def _connection(self) -> tuple[str, http.client.HTTPConnection]:
        try:
            parts = urlsplit(self.url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        if not is_usable or "@" in self.url:
            got = "one with a password" if "@" in self.url else repr(self.url)
            raise RejectedError(
                f"expected the gateway's address as http://host:port, got {got}: correct --url or REEF_URL; "
                "a token goes into REEF_TOKEN",
                reason="configuration",
            )
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return parts.path.rstrip("/"), kind(parts.hostname or "", parts.port, timeout=CONNECT_S_MAX)


def _scenario_header(scenario: str | None) -> dict[str, str]:
    return {"x-reef-scenario": scenario} if scenario else {}


def _read(answer: http.client.HTTPResponse, ends_s: float) -> bytes:
    text = bytearray()
    while chunk := answer.read(_CHUNK_BYTES):
        text += chunk
        if time.monotonic() > ends_s or len(text) > BODY_BYTES_MAX:
            raise TimeoutError
    return bytes(text)


def _told(status: int, text: bytes, url: str) -> Answer:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise UnavailableError(
            f"expected JSON from {url}, got status {status} and something else: is it a gateway of Reef?",
            reason="not_a_gateway",
        )
    if status >= http.HTTPStatus.BAD_REQUEST:
        raise _refusal(status, body)
    return body


def _refusal(status: int, body: Mapping[str, Any]) -> ReefError:
    """Turn the gateway's refusal into the kind that says who can act."""
    error = body.get("error")
    said: Mapping[str, Any] = error if isinstance(error, dict) else {}
    message = str(said.get("message") or f"expected an answer, got status {status}")
    code = str(said.get("code") or status)
    if status == http.HTTPStatus.CONFLICT:
        return ConflictError(message, reason=code)
    if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR or status == http.HTTPStatus.TOO_MANY_REQUESTS:
        return UnavailableError(message, reason=code)
    return RejectedError(message, reason=code)
