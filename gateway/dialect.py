"""Pure: what an API must be able to do so that its calls are answered by the engine and captured.

A dialect translates; it neither asks nor records. Each stands in the file of its name.

Next: gateway/chat.py
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.capture import Capture
from gateway.errors import FieldError, Problem
from gateway.fields import FLAG, check_fields
from schemas.events import Api, CaptureFault, Sampling
from schemas.ids import Receipt

_STREAM = {"stream": FLAG}


@dataclass(slots=True, kw_only=True)
class Ask:
    """A client's request, understood: only read once made, but not frozen, which would triple its cost."""

    upstream: dict[str, Any]
    """What to ask the engine, but for what every call adds (`model`, `cache_salt`)."""
    path: str
    """The engine's route."""
    sampling: Sampling
    """As asked and written out."""
    is_stream: bool
    """Whether the client wants a stream."""
    system: str
    """First system message, for the route."""
    user: str
    """First user message, for the route."""
    faults: tuple[CaptureFault, ...] = ()
    """Known before the engine is asked, such as an image in the prompt."""
    wants: frozenset[str] = frozenset()
    """What the client asked for among `logprobs`, `token_ids` and `usage`."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The client's own request."""


def wants_stream(body: Mapping[str, Any]) -> bool:
    """Read whether the client wants a stream. Raises FieldError: a guess would answer in the wrong form."""
    check_fields(body, _STREAM)
    return bool(body.get("stream"))


def with_tools(tools: Sequence[Mapping[str, Any]], choice: Mapping[str, Any]) -> dict[str, Any]:
    """Put tools, in the engine's words, beside which of them to use.

    Raises FieldError when one must be used and there is none.
    """
    if tools:
        return {"tools": [*tools], **choice}
    if choice.get("tool_choice") not in (None, "auto", "none"):
        raise FieldError("expected tools beside a tool_choice that forces one, got none", param="tool_choice")
    return {}


def refuse_given(body: Mapping[str, Any], names: Iterable[str], remedy: str) -> None:
    """Refuse fields whose meaning cannot be kept here. Raises FieldError."""
    for name in names:
        if body.get(name):
            raise FieldError(f"expected no {name}, got one: {remedy}", param=name)


class StreamTranslator(Protocol):
    """One stream, from the engine's chunks to the client's bytes."""

    def chunk(self, chunk: dict[str, Any], payload: bytes) -> bytes:
        """Translate a chunk; `payload` is its JSON as the engine wrote it. May give nothing."""

    def ending(self, capture: Capture, receipt: Receipt | None) -> bytes:
        """Give the last bytes of a whole stream, with the receipt where the client wants it."""

    def broken(self, problem: Problem) -> bytes:
        """Give the last bytes of a stream that broke."""


class Dialect(Protocol):
    """An API that clients speak."""

    api: Api
    """Its name in events."""

    def ask(self, body: dict[str, Any], defaults: Sampling) -> Ask:
        """Understand a request. Raises RejectedError."""

    def answer(self, ask: Ask, answer: dict[str, Any], raw: bytes, model: str) -> bytes:
        """Give the client's whole answer; `raw` is `answer` as the engine wrote it."""

    def translator(self, ask: Ask, model: str) -> StreamTranslator:
        """Begin a stream."""

    def whole(self, ask: Ask, capture: Capture, model: str) -> bytes:
        """Give the answer that a stream amounts to, for the record."""
