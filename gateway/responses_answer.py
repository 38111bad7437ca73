"""Pure: the engine's chat answers as OpenAI's responses, whole or as their sequence of events."""

from typing import Any

import orjson

from gateway.capture import Capture, CapturedChoice
from gateway.dialect import Ask
from gateway.errors import Problem
from schemas.ids import Receipt

_ECHOED = ("instructions", "max_output_tokens", "temperature", "top_p", "metadata", "text", "reasoning")


def response_of(ask: Ask, capture: Capture, model: str) -> dict[str, Any]:
    """Give a whole response."""
    choice = capture.choices.get(0) or CapturedChoice()
    is_cut = choice.finish_reason == "length"
    status = "incomplete" if is_cut or choice.finish_reason is None else "completed"
    response = frame(ask, capture.id, capture.created, model, status)
    if is_cut:
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    response["output"] = _output(choice, capture.id)
    response["usage"] = _usage(capture)
    return response


def frame(ask: Ask, answer_id: str, created: int, model: str, status: str) -> dict[str, Any]:
    """Give what a response says before there is any output."""
    return {
        "id": f"resp_{answer_id}",
        "object": "response",
        "created_at": created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "parallel_tool_calls": bool(ask.body.get("parallel_tool_calls", True)),
        "tool_choice": ask.body.get("tool_choice") or "auto",
        "tools": ask.body.get("tools") or [],
        "store": False,
        "previous_response_id": None,
        **{name: ask.body.get(name) for name in _ECHOED},
        "usage": None,
    }


def _output(choice: CapturedChoice, answer_id: str) -> list[dict[str, Any]]:
    output = []
    if choice.reasoning:
        output.append(_thought(answer_id, "".join(choice.reasoning)))
    text = "".join(choice.content)
    if text or not choice.tool_calls:
        output.append(_message(answer_id, text, "completed"))
    for index, call in sorted(choice.tool_calls.items()):
        function = call["function"]
        output.append(_call(answer_id, index, call["id"], function["name"], function["arguments"]))
    return output


def _message(answer_id: str, text: str, status: str) -> dict[str, Any]:
    content = [_text(text)] if status == "completed" else []
    return {
        "id": f"msg_{answer_id}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _thought(answer_id: str, text: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"id": f"rs_{answer_id}", "type": "reasoning", "summary": [], "content": content}


def _call(answer_id: str, index: int, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"fc_{answer_id}_{index}",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def _usage(capture: Capture) -> dict[str, Any]:
    usage = capture.usage or {}
    prompt = usage.get("prompt_tokens", len(capture.prompt_token_ids or ()))
    completion = usage.get("completion_tokens", capture.num_completion_tokens())
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }


class ResponsesStream:
    """The events of one response, numbered, in the order that OpenAI's clients expect."""

    __slots__ = (
        "_ask",
        "_calls",
        "_id",
        "_is_begun",
        "_model",
        "_num_events",
        "_num_items",
        "_open",
        "_text",
    )

    def __init__(self, ask: Ask, model: str) -> None:
        """Begin a stream."""
        self._ask = ask
        self._model = model
        self._is_begun = False
        self._id = ""
        self._num_events = 0
        self._num_items = 0
        self._open: str | int | None = None
        self._text: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def chunk(self, chunk: dict[str, Any], payload: bytes) -> bytes:
        """Translate a chunk into the events that it causes."""
        pieces: list[bytes] = []
        if not self._is_begun:
            self._is_begun = True
            self._id = chunk.get("id") or ""
            begun = frame(self._ask, self._id, chunk.get("created") or 0, self._model, "in_progress")
            pieces.append(self._event("response.created", response=begun))
            pieces.append(self._event("response.in_progress", response=begun))
        for choice in chunk["choices"]:
            if choice["index"] == 0:
                self._translate(choice.get("delta") or {}, pieces)
        return b"".join(pieces)

    def ending(self, capture: Capture, receipt: Receipt | None) -> bytes:
        """Close what is open, then give the whole response."""
        pieces: list[bytes] = []
        self._close(pieces)
        whole = response_of(self._ask, capture, self._model)
        if receipt is not None:
            whole["reef"] = {"agent_record_id": receipt}
        kind = "response.completed" if whole["status"] == "completed" else "response.incomplete"
        pieces.append(self._event(kind, response=whole))
        return b"".join(pieces)

    def broken(self, problem: Problem) -> bytes:
        """Say what broke; `response.completed` never comes."""
        return self._event("error", code=problem.code, message=problem.message, param=problem.param)

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(body))

    def _translate(self, delta: dict[str, Any], pieces: list[bytes]) -> None:
        if thought := delta.get("reasoning") or delta.get("reasoning_content"):
            self._begin("reasoning", {**_thought(self._id, ""), "content": []}, pieces)
            self._text.append(thought)
            pieces.append(self._piece("response.reasoning_text.delta", delta=thought))
        if text := delta.get("content"):
            if self._begin("message", _message(self._id, "", "in_progress"), pieces):
                pieces.append(self._piece("response.content_part.added", part=_text("")))
            self._text.append(text)
            pieces.append(self._piece("response.output_text.delta", delta=text, logprobs=[]))
        for call in delta.get("tool_calls") or ():
            self._call(call, pieces)

    def _call(self, call: dict[str, Any], pieces: list[bytes]) -> None:
        function, index = call.get("function") or {}, call.get("index", 0)
        item = self._calls.get(index)
        if item is None:
            item = _call(self._id, index, call.get("id") or "", function.get("name") or "", "")
            self._calls[index] = item
            self._begin(index, {**item, "status": "in_progress"}, pieces)
        if arguments := function.get("arguments"):
            item["arguments"] += arguments
            kind = "response.function_call_arguments.delta"
            pieces.append(
                self._event(kind, item_id=item["id"], output_index=self._num_items - 1, delta=arguments)
            )

    def _begin(self, name: str | int, item: dict[str, Any], pieces: list[bytes]) -> bool:
        """Open an item unless it is open already; whether it was opened."""
        if self._open == name:
            return False
        self._close(pieces)
        self._open = name
        self._num_items += 1
        pieces.append(self._event("response.output_item.added", output_index=self._num_items - 1, item=item))
        return True

    def _piece(self, kind: str, **fields: Any) -> bytes:
        item_id = f"rs_{self._id}" if self._open == "reasoning" else f"msg_{self._id}"
        return self._event(kind, item_id=item_id, output_index=self._num_items - 1, content_index=0, **fields)

    def _close(self, pieces: list[bytes]) -> None:
        if self._open is None:
            return
        text = "".join(self._text)
        match self._open:
            case "message":
                pieces.append(self._piece("response.output_text.done", text=text, logprobs=[]))
                pieces.append(self._piece("response.content_part.done", part=_text(text)))
                item = _message(self._id, text, "completed")
            case "reasoning":
                pieces.append(self._piece("response.reasoning_text.done", text=text))
                item = _thought(self._id, text)
            case index:
                item = self._calls[int(index)]
                pieces.append(self._arguments_done(item))
        pieces.append(self._event("response.output_item.done", output_index=self._num_items - 1, item=item))
        self._open, self._text = None, []

    def _arguments_done(self, item: dict[str, Any]) -> bytes:
        return self._event(
            "response.function_call_arguments.done",
            item_id=item["id"],
            output_index=self._num_items - 1,
            name=item["name"],
            arguments=item["arguments"],
        )
