"""Pure: OpenAI Responses without memory, asked of the engine's chat route and captured as exactly.

What needs a memory of earlier responses is refused: the client sends the conversation itself.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.capture import Capture
from gateway.chat import PATH, chat_faults, first_words
from gateway.dialect import Ask, refuse_given, wants_stream, with_tools
from gateway.errors import FieldError
from gateway.fields import NO_KINDS, check_fields
from gateway.responses_answer import ResponsesStream, response_of
from gateway.responses_fields import CHOSEN, FIELDS, ITEM, ITEMS, LOGPROBS, PART, PARTS, TOOL
from gateway.sampling import sampling_of, written_out
from schemas.events import Api, Sampling

NEEDS_MEMORY = ("previous_response_id", "conversation", "prompt", "background")
_PASSED = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "parallel_tool_calls", "user"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "chat_template_kwargs"),
)


class Responses:
    """The dialect of /v1/responses."""

    api = Api.RESPONSES

    def ask(self, body: dict[str, Any], defaults: Sampling) -> Ask:
        """Understand a request. Raises RejectedError."""
        chat = chat_of(body)
        is_stream = wants_stream(body)
        upstream = {
            **chat,
            **written_out(body, defaults),
            "logprobs": True,
            "return_token_ids": True,
        }
        if is_stream:
            upstream |= {"stream": True, "stream_options": {"include_usage": True}}
        system, user = first_words(chat["messages"])
        return Ask(
            upstream=upstream,
            path=PATH,
            sampling=sampling_of(upstream, defaults),
            is_stream=is_stream,
            system=system,
            user=user,
            faults=chat_faults(chat, chat["messages"]),
            body=body,
        )

    def answer(self, ask: Ask, answer: dict[str, Any], raw: bytes, model: str) -> bytes:
        """Give the engine's answer as a response."""
        capture = Capture()
        capture.answer(answer)
        return self.whole(ask, capture, model)

    def translator(self, ask: Ask, model: str) -> ResponsesStream:
        """Begin a stream."""
        return ResponsesStream(ask, model)

    def whole(self, ask: Ask, capture: Capture, model: str) -> bytes:
        """Join the chunks into one response."""
        return orjson.dumps(response_of(ask, capture, model))


def chat_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Translate what is said, which tools there are, and the form of the answer. Raises FieldError."""
    check_fields(body, FIELDS)
    refuse_given(body, NEEDS_MEMORY, "responses are not kept, send the conversation in input")
    _refuse_what_would_be_missing(body)
    chat: dict[str, Any] = {"messages": [*_instructions(body), *_messages(body["input"])]}
    chat |= {name: body[name] for name in _PASSED if body.get(name) is not None}
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = body["max_output_tokens"]
    tools = [_tool(tool, f"tools.{number}") for number, tool in enumerate(body.get("tools") or ())]
    chat |= with_tools(tools, _tool_choice(body.get("tool_choice")))
    chat |= _form((body.get("text") or {}).get("format"))
    if effort := (body.get("reasoning") or {}).get("effort"):
        chat["reasoning_effort"] = effort
    return chat


def _refuse_what_would_be_missing(body: Mapping[str, Any]) -> None:
    """Refuse what would be missing in the answer. Raises FieldError."""
    if body.get("n") not in (None, 1):
        raise FieldError("expected n to be 1, got another: a response is one answer, ask again", param="n")
    remedy = f"responses have no logprobs here, ask {PATH} for them"
    refuse_given(body, ["top_logprobs"], remedy)
    if LOGPROBS in (body.get("include") or ()):
        raise FieldError(f"expected no {LOGPROBS} in include, got it: {remedy}", param="include")


def _instructions(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if body.get("instructions"):
        yield {"role": "system", "content": body["instructions"]}


def _messages(given: str | list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    if isinstance(given, str):
        yield {"role": "user", "content": given}
        return
    calls: list[dict[str, Any]] = []
    for number, item in enumerate(given):
        at = f"input.{number}"
        kind = item.get("type", "message")
        check_fields(item, ITEMS.get(kind, NO_KINDS) if isinstance(kind, str) else ITEM, at)
        if kind == "function_call":
            calls.append(_call(item))
            continue
        if calls:
            yield {"role": "assistant", "content": None, "tool_calls": calls}
            calls = []
        yield from _item(item, at)
    if calls:
        yield {"role": "assistant", "content": None, "tool_calls": calls}


def _item(item: Mapping[str, Any], at: str) -> Iterator[dict[str, Any]]:
    match item.get("type", "message"):
        case "message":
            yield _message(item, at)
        case "function_call_output":
            output = item["output"]
            text = output if isinstance(output, str) else orjson.dumps(output).decode()
            yield {"role": "tool", "tool_call_id": item["call_id"], "content": text}
        case "reasoning":
            return
        case other:
            raise FieldError(
                f"expected a message, function_call, function_call_output or reasoning at {at}, "
                f"got {str(other)[:40]!r}: leave it out",
                param=at,
            )


def _message(item: Mapping[str, Any], at: str) -> dict[str, Any]:
    role, content = item["role"], item["content"]
    if isinstance(content, str):
        return {"role": role, "content": content}
    parts = [_part(part, f"{at}.content.{number}") for number, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts) and (len(parts) == 1 or role == "assistant"):
        return {"role": role, "content": "".join(part["text"] for part in parts)}
    return {"role": role, "content": parts}


def _part(part: Mapping[str, Any], at: str) -> dict[str, Any]:
    check_fields(part, PART, at)
    kind = part["type"]
    check_fields(part, PARTS.get(kind, NO_KINDS), at)
    match kind:
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": part["text"]}
        case "refusal":
            return {"type": "text", "text": part["refusal"]}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": part["image_url"]}}
        case _:
            raise FieldError(f"expected text or an image with its URL in {at}, got another part", param=at)


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item["name"], "arguments": item.get("arguments") or "{}"}
    return {"id": item["call_id"], "type": "function", "function": function}


def _tool(tool: Mapping[str, Any], at: str) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise FieldError(f"expected {at} to be a function, got another: the engine has no tools", param=at)
    check_fields(tool, TOOL, at)
    function = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None}
    if tool.get("strict"):
        function["strict"] = True
    return {"type": "function", "function": function}


def _tool_choice(choice: str | Mapping[str, Any] | None) -> dict[str, Any]:
    if choice is None:
        return {}
    if isinstance(choice, str):
        return {"tool_choice": choice}
    check_fields(choice, CHOSEN, "tool_choice")
    return {"tool_choice": {"type": "function", "function": {"name": choice["name"]}}}


def _form(wanted: Mapping[str, Any] | None) -> dict[str, Any]:
    if wanted is None or wanted["type"] == "text":
        return {}
    if wanted["type"] != "json_schema":
        return {"response_format": dict(wanted)}
    schema = {key: value for key, value in wanted.items() if key != "type"}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
