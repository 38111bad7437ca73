"""Pure: OpenAI Responses without memory, asked of the engine's chat route and captured as exactly.

What needs a memory of earlier responses is refused: the client sends the conversation itself.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.capture import Capture
from gateway.chat import PATH, chat_faults, first_words
from gateway.dialect import Ask, listed_tools, wants_stream
from gateway.errors import FieldError
from gateway.responses_answer import ResponsesStream, response_of
from gateway.sampling import sampling_of, written_out
from schemas.events import Api, Sampling

NEEDS_MEMORY = ("previous_response_id", "conversation", "prompt", "background")
_PASSED = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "parallel_tool_calls", "user"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "chat_template_kwargs"),
)
_ROLES = frozenset({"user", "assistant", "system", "developer"})


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
    for name in NEEDS_MEMORY:
        if body.get(name):
            raise FieldError(
                f"expected no {name}, got one: responses are not kept, send the conversation in input",
                param=name,
            )
    chat: dict[str, Any] = {"messages": [*_instructions(body), *_messages(body.get("input"))]}
    chat |= {name: body[name] for name in _PASSED if body.get(name) is not None}
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = body["max_output_tokens"]
    if tools := listed_tools(body):
        chat["tools"] = [_tool(tool, f"tools.{number}") for number, tool in enumerate(tools)]
        chat |= _tool_choice(body.get("tool_choice"))
    chat |= _form(body.get("text"))
    effort = (
        (body.get("reasoning") or {}).get("effort") if isinstance(body.get("reasoning"), Mapping) else None
    )
    if effort:
        chat["reasoning_effort"] = effort
    return chat


def _instructions(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if body.get("instructions"):
        yield {"role": "system", "content": str(body["instructions"])}


def _messages(given: Any) -> Iterator[dict[str, Any]]:
    if isinstance(given, str):
        yield {"role": "user", "content": given}
        return
    if not isinstance(given, list) or not given:
        raise FieldError("expected input to be text or a list of items, got another value", param="input")
    calls: list[dict[str, Any]] = []
    for number, item in enumerate(given):
        at = f"input.{number}"
        if not isinstance(item, Mapping):
            raise FieldError(f"expected {at} to be an object, got another value", param=at)
        if item.get("type") == "function_call":
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
            output = item.get("output")
            text = output if isinstance(output, str) else orjson.dumps(output).decode()
            yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": text}
        case "reasoning":
            return
        case other:
            raise FieldError(
                f"expected a message, function_call, function_call_output or reasoning at {at}, "
                f"got {str(other)[:40]!r}: leave it out",
                param=at,
            )


def _message(item: Mapping[str, Any], at: str) -> dict[str, Any]:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        raise FieldError(
            f"expected {at}.role to be user, assistant or system, got another", param=f"{at}.role"
        )
    if isinstance(content, str):
        return {"role": role, "content": content}
    if not isinstance(content, list):
        raise FieldError(
            f"expected {at}.content to be text or parts, got another value", param=f"{at}.content"
        )
    parts = [_part(part, f"{at}.content") for part in content]
    if all(part["type"] == "text" for part in parts) and (len(parts) == 1 or role == "assistant"):
        return {"role": role, "content": "".join(part["text"] for part in parts)}
    return {"role": role, "content": parts}


def _part(part: Any, at: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "refusal":
        return {"type": "text", "text": str(part.get("refusal", ""))}
    if kind == "input_image" and part.get("image_url"):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    raise FieldError(f"expected text or an image with its URL in {at}, got another part", param=at)


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _tool(tool: Any, at: str) -> dict[str, Any]:
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        raise FieldError(f"expected {at} to be a function, got another: the engine has no tools", param=at)
    function = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: Any) -> dict[str, Any]:
    if choice is None:
        return {}
    if isinstance(choice, Mapping):
        return {"tool_choice": {"type": "function", "function": {"name": choice.get("name")}}}
    return {"tool_choice": choice}


def _form(text: Any) -> dict[str, Any]:
    wanted = text.get("format") if isinstance(text, Mapping) else None
    if not isinstance(wanted, Mapping) or wanted.get("type") == "text":
        return {}
    if wanted.get("type") != "json_schema":
        return {"response_format": dict(wanted)}
    schema = {key: value for key, value in wanted.items() if key != "type"}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
