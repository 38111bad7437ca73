"""Pure: the engine's chat answers as Anthropic's messages, whole or as their sequence of events."""

from typing import Any

import orjson

from gateway.capture import Capture, CapturedChoice
from gateway.dialect import Ask
from gateway.errors import Problem, anthropic_error
from schemas.ids import Receipt

_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def message_of(ask: Ask, capture: Capture, model: str) -> dict[str, Any]:
    """Give a whole message."""
    choice = capture.choices.get(0) or CapturedChoice()
    reason, sequence = stop_of(ask, choice)
    return {
        "id": f"msg_{capture.id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _blocks(choice),
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": _usage(capture),
    }


def stop_of(ask: Ask, choice: CapturedChoice) -> tuple[str | None, str | None]:
    """Say why an answer ended, and on which sequence."""
    if choice.finish_reason is None:
        return None, None
    if choice.finish_reason in _STOP_REASONS:
        return _STOP_REASONS[choice.finish_reason], None
    if choice.tool_calls:
        return "tool_use", None
    if choice.stop_reason in (ask.body.get("stop_sequences") or ()):
        return "stop_sequence", choice.stop_reason
    return "end_turn", None


def _blocks(choice: CapturedChoice) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if choice.reasoning:
        blocks.append({"type": "thinking", "thinking": "".join(choice.reasoning), "signature": ""})
    text = "".join(choice.content)
    if text:
        blocks.append({"type": "text", "text": text})
    for _, call in sorted(choice.tool_calls.items()):
        function = call["function"]
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": function["name"],
                "input": _input(function["arguments"]),
            }
        )
    return blocks


def _input(arguments: str) -> dict[str, Any]:
    """Read a tool's arguments; what the model wrote wrongly is handed over as it is."""
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"_unparsed": arguments}


def _usage(capture: Capture) -> dict[str, int]:
    usage = capture.usage or {}
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return {
        "input_tokens": len(capture.prompt_token_ids or ()) if prompt is None else prompt,
        "output_tokens": capture.num_completion_tokens() if completion is None else completion,
    }


def event(kind: str, **fields: Any) -> bytes:
    """Write an event of Anthropic's streams."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


class MessagesStream:
    """The events of one message, in the order that Anthropic's clients expect."""

    __slots__ = ("_ask", "_block", "_is_begun", "_model", "_num_blocks", "_tools")

    def __init__(self, ask: Ask, model: str) -> None:
        """Begin a stream."""
        self._ask = ask
        self._model = model
        self._is_begun = False
        self._num_blocks = 0
        self._block: str | int | None = None
        self._tools: dict[int, int] = {}

    def chunk(self, chunk: dict[str, Any], payload: bytes) -> bytes:
        """Translate a chunk into the events that it causes."""
        pieces: list[bytes] = []
        if not self._is_begun:
            self._is_begun = True
            pieces.append(self._start(chunk))
        for choice in chunk["choices"]:
            if choice["index"] == 0:
                self._translate(choice.get("delta") or {}, pieces)
        return b"".join(pieces)

    def ending(self, capture: Capture, receipt: Receipt | None) -> bytes:
        """Close the last block, say why it ended and what it cost, then stop."""
        pieces: list[bytes] = []
        self._close(pieces)
        reason, sequence = stop_of(self._ask, capture.choices.get(0) or CapturedChoice())
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        pieces.append(event("message_delta", delta=delta, usage=_usage(capture)))
        reef = {} if receipt is None else {"reef": {"agent_record_id": receipt}}
        pieces.append(event("message_stop", **reef))
        return b"".join(pieces)

    def broken(self, problem: Problem) -> bytes:
        """Say what broke; `message_stop` never comes."""
        return b"event: error\ndata: " + orjson.dumps(anthropic_error(problem)) + b"\n\n"

    def _start(self, chunk: dict[str, Any]) -> bytes:
        message: dict[str, Any] = {
            "id": f"msg_{chunk.get('id') or ''}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": len(chunk.get("prompt_token_ids") or ()), "output_tokens": 0},
        }
        return event("message_start", message=message)

    def _translate(self, delta: dict[str, Any], pieces: list[bytes]) -> None:
        if thought := delta.get("reasoning") or delta.get("reasoning_content"):
            self._open("thinking", {"type": "thinking", "thinking": "", "signature": ""}, pieces)
            pieces.append(self._delta({"type": "thinking_delta", "thinking": thought}))
        if text := delta.get("content"):
            self._open("text", {"type": "text", "text": ""}, pieces)
            pieces.append(self._delta({"type": "text_delta", "text": text}))
        for call in delta.get("tool_calls") or ():
            self._call(call, pieces)

    def _call(self, call: dict[str, Any], pieces: list[bytes]) -> None:
        function = call.get("function") or {}
        index = call.get("index", 0)
        if index not in self._tools:
            block: dict[str, Any] = {
                "type": "tool_use",
                "id": call.get("id") or f"toolu_{index}",
                "name": function.get("name") or "",
                "input": {},
            }
            self._open(index, block, pieces)
            self._tools[index] = self._num_blocks - 1
        if arguments := function.get("arguments"):
            delta = {"type": "input_json_delta", "partial_json": arguments}
            pieces.append(event("content_block_delta", index=self._tools[index], delta=delta))

    def _open(self, block: str | int, content: dict[str, Any], pieces: list[bytes]) -> None:
        if self._block == block:
            return
        self._close(pieces)
        self._block = block
        self._num_blocks += 1
        pieces.append(event("content_block_start", index=self._num_blocks - 1, content_block=content))

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return event("content_block_delta", index=self._num_blocks - 1, delta=delta)

    def _close(self, pieces: list[bytes]) -> None:
        if self._block is not None:
            pieces.append(event("content_block_stop", index=self._num_blocks - 1))
            self._block = None
