"""Pure: what a failed swap is called in the log, whatever raised it."""

from schemas.errors import ReefError
from schemas.events import SwapFailure

DETAIL_CHARS_MAX = 1_000


def failure_of(error: ReefError) -> SwapFailure:
    """Find the word for an error: its own reason, or that of what caused it."""
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    known = {failure.value for failure in SwapFailure}
    reasons = [cause.reason for cause in reversed(causes) if isinstance(cause, ReefError)]
    found = next((reason for reason in reasons if reason in known), SwapFailure.ARTIFACT_UNAVAILABLE)
    return SwapFailure(found)


def detail_of(error: ReefError) -> str:
    """Say what happened, at a bounded length."""
    return str(error)[:DETAIL_CHARS_MAX]
