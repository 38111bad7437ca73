"""Pure: Anthropic Messages asked of the engine's chat route, so that they are captured token-exactly too.

Only the question is translated here; gateway/messages_answer.py translates back.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from gateway.capture import Capture
from gateway.chat import PATH, chat_faults, first_words
from gateway.dialect import Ask, listed_tools, wants_stream
from gateway.errors import FieldError
from gateway.messages_answer import MessagesStream, message_of
from gateway.sampling import sampling_of, written_out
from schemas.events import Api, Sampling

_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class Messages:
    """The dialect of /v1/messages."""

    api = Api.MESSAGES

    def ask(self, body: dict[str, Any], defaults: Sampling) -> Ask:
        """Understand a question. Raises RejectedError."""
        max_tokens = body.get("max_tokens")
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise FieldError(
                "expected max_tokens to be a positive integer, got none: set it", param="max_tokens"
            )
        chat = chat_of(body)
        is_stream = wants_stream(body)
        upstream = {
            **chat,
            **written_out(body, defaults),
            "max_tokens": max_tokens,
            "logprobs": True,
            "return_token_ids": True,
        }
        if is_stream:
            upstream |= {"stream": True, "stream_options": {"include_usage": True}}
        if body.get("stop_sequences"):
            upstream["stop"] = body["stop_sequences"]
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
        """Give the engine's answer as a message."""
        capture = Capture()
        capture.answer(answer)
        return self.whole(ask, capture, model)

    def translator(self, ask: Ask, model: str) -> MessagesStream:
        """Begin a stream."""
        return MessagesStream(ask, model)

    def whole(self, ask: Ask, capture: Capture, model: str) -> bytes:
        """Join the chunks into one message."""
        return orjson.dumps(message_of(ask, capture, model))


def chat_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Translate what is said and which tools there are. Raises FieldError."""
    written = body.get("messages")
    if not isinstance(written, list) or not written:
        raise FieldError(
            "expected messages to be a list of one or more, got none: send some", param="messages"
        )
    messages = [*_system(body.get("system"))]
    for number, message in enumerate(written):
        messages += _message(message, f"messages.{number}")
    chat: dict[str, Any] = {"messages": messages}
    if tools := listed_tools(body):
        chat["tools"] = [_tool(tool, f"tools.{number}") for number, tool in enumerate(tools)]
        chat |= _tool_choice(body.get("tool_choice"))
    thinking = body.get("thinking")
    if isinstance(thinking, Mapping):
        chat["chat_template_kwargs"] = {"enable_thinking": thinking.get("type") != "disabled"}
    return chat


def _system(system: Any) -> Iterator[dict[str, Any]]:
    if isinstance(system, str) and system:
        yield {"role": "system", "content": system}
    elif isinstance(system, list):
        yield {"role": "system", "content": "\n".join(_text(block, "system") for block in system)}


def _message(message: Any, at: str) -> Iterator[dict[str, Any]]:
    if not isinstance(message, Mapping) or message.get("role") not in ("user", "assistant", "system"):
        raise FieldError(f"expected {at}.role to be user or assistant, got another value", param=f"{at}.role")
    content = message.get("content")
    if isinstance(content, str):
        yield {"role": message["role"], "content": content}
        return
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise FieldError(
            f"expected {at}.content to be text or blocks, got another value", param=f"{at}.content"
        )
    if message["role"] == "assistant":
        yield _assistant(content, f"{at}.content")
    else:
        yield from _user(message["role"], content, f"{at}.content")


def _user(role: str, content: Iterable[Mapping[str, Any]], at: str) -> Iterator[dict[str, Any]]:
    """Give the results of tools first, each as a message of its own, then what the user says."""
    parts: list[dict[str, Any]] = []
    for block in content:
        if block.get("type") == "tool_result":
            yield {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": _result(block.get("content"), at),
            }
        else:
            parts.append(_part(block, at))
    if len(parts) == 1 and parts[0]["type"] == "text":
        yield {"role": role, "content": parts[0]["text"]}
    elif parts:
        yield {"role": role, "content": parts}


def _assistant(content: Iterable[Mapping[str, Any]], at: str) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for block in content:
        match block.get("type"):
            case "text":
                texts.append(_text(block, at))
            case "thinking":
                thoughts.append(str(block.get("thinking", "")))
            case "tool_use":
                calls.append(_call(block))
            case "redacted_thinking":
                continue
            case other:
                raise _unknown_block(other, at)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = orjson.dumps(block.get("input") or {}).decode()
    return {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }


def _part(block: Mapping[str, Any], at: str) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": _text(block, at)}
        case "image":
            return {"type": "image_url", "image_url": {"url": _image_url(block.get("source"), at)}}
        case other:
            raise _unknown_block(other, at)


def _image_url(source: Any, at: str) -> str:
    if isinstance(source, Mapping) and source.get("type") == "url":
        return str(source.get("url"))
    if isinstance(source, Mapping) and source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    raise FieldError(f"expected an image with a url or base64 source in {at}, got another", param=at)


def _result(content: Any, at: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "\n".join(_text(block, at) for block in content)
    raise FieldError(f"expected the result of a tool in {at} to be text, got another value", param=at)


def _text(block: Any, at: str) -> str:
    text = block.get("text") if isinstance(block, Mapping) and block.get("type") == "text" else None
    if not isinstance(text, str):
        raise FieldError(f"expected a text block in {at}, got another: send text", param=at)
    return text


def _tool(tool: Any, at: str) -> dict[str, Any]:
    if not isinstance(tool, Mapping) or tool.get("type", "custom") != "custom" or "name" not in tool:
        raise FieldError(
            f"expected {at} to be a tool of your own with a name, got another: the engine has no tools",
            param=at,
        )
    function = {"name": tool["name"], "parameters": tool.get("input_schema") or {"type": "object"}}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _tool_choice(choice: Any) -> dict[str, Any]:
    if not isinstance(choice, Mapping):
        return {}
    kind = choice.get("type")
    translated: dict[str, Any] = {}
    if kind == "tool":
        translated["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif isinstance(kind, str) and kind in _TOOL_CHOICES:
        translated["tool_choice"] = _TOOL_CHOICES[kind]
    else:
        raise FieldError(
            "expected tool_choice.type to be auto, any, tool or none, got another", param="tool_choice"
        )
    if choice.get("disable_parallel_tool_use"):
        translated["parallel_tool_calls"] = False
    return translated


def _unknown_block(kind: Any, at: str) -> FieldError:
    return FieldError(
        f"expected text, image, thinking, tool_use or tool_result in {at}, got {str(kind)[:40]!r}: "
        "leave it out",
        param=at,
    )
