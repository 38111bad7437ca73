"""Pure: every way to refuse, in one table: reason to status, and the forms that clients know errors by.

Not the catching: gateway/app.py has the one boundary.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import orjson

from schemas.errors import ConflictError, ReefError, RejectedError, UnavailableError

RETRY_AFTER_S = 1

REASONS: Mapping[str, int] = MappingProxyType(
    {
        "unauthenticated": 401,
        "forbidden": 403,
        "no_such_route": 404,
        "no_such_scenario": 404,
        "no_such_release": 404,
        "no_such_call": 404,
        "nothing_so_named": 404,
        "no_such_harness": 404,
        "no_such_routing": 404,
        "method_not_allowed": 405,
        "body_timeout": 408,
        "body_too_large": 413,
        "over_concurrency": 429,
        "head_too_large": 431,
        "engine_nonsense": 502,
        "kafka_refused": 503,
        "engine_slow": 504,
        "bug": 500,
    }
)
"""Reasons whose status differs from that of their kind."""
ENGINE_STATUSES_PASSED = frozenset({400, 408, 413, 422, 429})
"""What an engine says about the client's own request is the client's to know (RULINGS 18)."""

_OPENAI_TYPES = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        405: "invalid_request_error",
        408: "timeout_error",
        409: "conflict_error",
        413: "invalid_request_error",
        422: "invalid_request_error",
        429: "rate_limit_error",
        431: "invalid_request_error",
        503: "overloaded_error",
        504: "timeout_error",
    }
)
_ANTHROPIC_TYPES = MappingProxyType({**_OPENAI_TYPES, 409: "invalid_request_error", 413: "request_too_large"})


class FieldError(RejectedError):
    """A field of a request is refused; `param` names it as the client wrote it."""

    def __init__(self, message: str, *, param: str, reason: str = "bad_field") -> None:
        """Refuse a field."""
        super().__init__(message, reason=reason)
        self.param = param


class WrongMethodError(RejectedError):
    """A route does not have this method; `allow` names those that it has."""

    def __init__(self, method: str, path: str, allowed: Iterable[str]) -> None:
        """Refuse a method."""
        self.allow = ", ".join(sorted(allowed))
        super().__init__(
            f"expected {self.allow.replace(', ', ' or ')} on {path}, got {method}: use that",
            reason="method_not_allowed",
        )


class EngineRefusedError(RejectedError):
    """The engine refused the client's own request."""

    def __init__(self, message: str, *, status: int, param: str | None, retry_after: str | None) -> None:
        """Pass on what the engine said."""
        super().__init__(message, reason=f"engine_{status}")
        self.status = status
        self.param = param
        self.retry_after = retry_after


def no_such_route(method: str, path: str) -> RejectedError:
    """Say that there is no such route."""
    return RejectedError(
        f"expected a route of this gateway, got {method} {path[:120]!r}: see docs/http.md",
        reason="no_such_route",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A refusal as HTTP says it."""

    status: int
    """HTTP status."""
    code: str
    """One word of a closed list, for machines."""
    message: str
    """What was expected, what came, what to do."""
    param: str | None = None
    """The field, as the client wrote it."""
    retry_after: str | None = None
    """Value of Retry-After; set when the same request may succeed later."""
    allow: str | None = None
    """Value of Allow: the methods that the route has; set with 405 (RFC 9110, 15.5.6)."""

    @property
    def headers(self) -> dict[str, str]:
        """Give what is said beside the body."""
        said = {"retry-after": self.retry_after, "allow": self.allow}
        return {name: value for name, value in said.items() if value is not None}


BUG = Problem(
    status=500, code="bug", message="the gateway failed: this is a bug, quote x-request-id when reporting it"
)


def problem_of(error: ReefError) -> Problem:
    """Turn an expected failure into what HTTP says of it."""
    status = _status_of(error)
    retry_after = getattr(error, "retry_after", None)
    if retry_after is None and status in {429, 503}:
        retry_after = str(RETRY_AFTER_S)
    return Problem(
        status=status,
        code=error.reason,
        message=str(error),
        param=getattr(error, "param", None),
        retry_after=retry_after,
        allow=getattr(error, "allow", None),
    )


def _status_of(error: ReefError) -> int:
    if isinstance(error, EngineRefusedError):
        return error.status
    if error.reason in REASONS:
        return REASONS[error.reason]
    match error:
        case UnavailableError():
            return 503
        case ConflictError():
            return 409
        case _:
            return 400


def openai_error(problem: Problem) -> dict[str, Any]:
    """Give the body that OpenAI's clients read."""
    kind = _OPENAI_TYPES.get(problem.status, "api_error")
    error = {"message": problem.message, "type": kind, "param": problem.param, "code": problem.code}
    return {"error": error}


def anthropic_error(problem: Problem) -> dict[str, Any]:
    """Give the body that Anthropic's clients read."""
    kind = _ANTHROPIC_TYPES.get(problem.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": problem.message}}


def is_anthropic(path: str) -> bool:
    """Whether a path belongs to Anthropic's API."""
    return path.startswith("/v1/messages")


def error_body(problem: Problem, path: str) -> bytes:
    """Give the JSON of a refusal in the form of the API that was called."""
    return orjson.dumps(anthropic_error(problem) if is_anthropic(path) else openai_error(problem))
