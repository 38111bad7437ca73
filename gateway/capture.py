"""Pure: what the engine generated, gathered beside the answer: ids, logprobs, text, tool calls, usage.

Not a judgement: gateway/record.py says what is missing.

Next: gateway/record.py
"""

import sys
from array import array
from typing import Any

from schemas.errors import UnavailableError
from schemas.packed import Logprobs, TokenIds

INDEX_END = 2**31
"""First index of a choice that events cannot hold."""
_WRONG_SHAPE = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


class CapturedChoice:
    """One of the answers of a call."""

    __slots__ = (
        "content",
        "finish_reason",
        "has_all_ids",
        "logprobs",
        "reasoning",
        "refusal",
        "role",
        "stop_reason",
        "token_ids",
        "tool_calls",
    )

    def __init__(self) -> None:
        """Begin with nothing."""
        self.role = "assistant"
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.tool_calls: dict[int, dict[str, Any]] = {}
        self.token_ids = array("I")
        self.logprobs = array("f")
        self.finish_reason: str | None = None
        self.stop_reason: Any = None
        self.has_all_ids = False


class Capture:
    """A call's answer as it comes in, whole or in chunks."""

    __slots__ = ("choices", "created", "has_shared_prompt", "id", "prompt_token_ids", "usage")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.id = ""
        self.created = 0
        self.choices: dict[int, CapturedChoice] = {}
        self.prompt_token_ids: array[int] | None = None
        self.has_shared_prompt = True
        self.usage: dict[str, Any] | None = None

    def answer(self, answer: dict[str, Any]) -> int:
        """Take a whole answer; gives how many tokens came. Raises UnavailableError on another shape."""
        try:
            return self._take(answer, "message")
        except _WRONG_SHAPE as error:
            raise nonsense("an answer") from error

    def chunk(self, chunk: dict[str, Any]) -> int:
        """Take a chunk of a stream; gives how many tokens came. Raises UnavailableError on another shape."""
        try:
            return self._take(chunk, "delta")
        except _WRONG_SHAPE as error:
            raise nonsense("a chunk") from error

    def ordered(self) -> list[tuple[int, CapturedChoice]]:
        """Give the choices by index."""
        return sorted(self.choices.items())

    def num_completion_tokens(self) -> int:
        """Count the ids of all choices."""
        return sum(len(choice.token_ids) for choice in self.choices.values())

    def _take(self, piece: dict[str, Any], where: str) -> int:
        if not self.id:
            self.id, self.created = piece.get("id") or "", piece.get("created") or 0
        if (usage := piece.get("usage")) is not None:
            self.usage = usage
        if (prompt := piece.get("prompt_token_ids")) is not None:
            self._take_prompt(prompt)
        num_tokens = 0
        for choice in piece["choices"]:
            index = choice["index"]
            captured = self.choices.get(index)
            if captured is None:
                captured = self.choices[_checked_index(index)] = CapturedChoice()
            num_tokens += self._take_choice(captured, choice, where)
        return num_tokens

    def _take_prompt(self, prompt: list[int]) -> None:
        if self.prompt_token_ids is None:
            self.prompt_token_ids = array("I", prompt)
        elif self.prompt_token_ids != array("I", prompt):
            self.has_shared_prompt = False

    def _take_choice(self, captured: CapturedChoice, choice: dict[str, Any], where: str) -> int:
        if (prompt := choice.get("prompt_token_ids")) is not None:
            self._take_prompt(prompt)
        if (message := choice.get(where)) is not None:
            _take_message(captured, message)
        elif (text := choice.get("text")) is not None:
            captured.content.append(text)
        if (reason := choice.get("finish_reason")) is not None:
            captured.finish_reason = str(reason)
            captured.stop_reason = choice.get("stop_reason")
        if (logprobs := choice.get("logprobs")) is not None:
            captured.logprobs.extend(_sampled(logprobs))
        if (token_ids := choice.get("token_ids")) is None:
            return 0
        captured.has_all_ids = True
        captured.token_ids.extend(token_ids)
        return len(token_ids)


def packed_tokens(token_ids: "array[int]") -> TokenIds:
    """Give ids as the little-endian bytes of events."""
    return TokenIds(_little_endian(token_ids))


def packed_logprobs(logprobs: "array[float]") -> Logprobs:
    """Give logprobs as the little-endian bytes of events."""
    return Logprobs(_little_endian(logprobs))


def _little_endian(values: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _checked_index(index: Any) -> int:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < INDEX_END:
        raise ValueError(index)
    return index


def _sampled(logprobs: dict[str, Any]) -> list[float]:
    """Read the logprob of each sampled token, from the chat or the completions form."""
    if (content := logprobs.get("content")) is not None:
        return [entry["logprob"] for entry in content]
    return [value for value in logprobs.get("token_logprobs") or () if value is not None]


def _take_message(captured: CapturedChoice, message: dict[str, Any]) -> None:
    if text := message.get("content"):
        captured.content.append(text)
    if text := message.get("reasoning") or message.get("reasoning_content"):
        captured.reasoning.append(text)
    if text := message.get("refusal"):
        captured.refusal.append(text)
    for position, call in enumerate(message.get("tool_calls") or ()):
        _take_tool_call(captured.tool_calls, call.get("index", position), call)


def _take_tool_call(calls: dict[int, dict[str, Any]], index: int, call: dict[str, Any]) -> None:
    """Join a piece of a tool call to what came of it before."""
    function = call.get("function") or {}
    known = calls.get(index)
    if known is None:
        known = calls[index] = {
            "id": call.get("id") or "",
            "type": call.get("type") or "function",
            "function": {"name": "", "arguments": ""},
        }
    known["id"] = call.get("id") or known["id"]
    known["function"]["name"] = function.get("name") or known["function"]["name"]
    known["function"]["arguments"] += function.get("arguments") or ""


def nonsense(what: str) -> UnavailableError:
    """Say that the engine broke its own contract."""
    return UnavailableError(
        f"expected {what} in the shape of an OpenAI completion from the engine, got another: "
        "see to the engine's version and logs",
        reason="engine_nonsense",
    )
