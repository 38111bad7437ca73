"""What clients of Messages and Responses write is taken as meant, or refused by the field's name."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import messages_fields, responses_fields
from gateway.capture import Capture
from gateway.dialect import Dialect
from gateway.errors import FieldError
from gateway.fields import Kinds
from gateway.messages import Messages, chat_of
from gateway.responses import Responses
from gateway.sampling import PLAIN_SAMPLING
from schemas.errors import RejectedError
from schemas.events import SamplingConstraint

SCHEMA = {"type": "object"}
MESSAGE: dict[str, Any] = {
    "model": "any",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                {"type": "image", "source": {"type": "url", "url": "https://pictures.example/1"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "seen"}],
                    "is_error": False,
                }
            ],
        },
    ],
    "stop_sequences": ["END"],
    "stream": False,
    "temperature": 0.5,
    "top_k": 5,
    "thinking": {"type": "enabled", "budget_tokens": 1_024},
    "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA, "strict": True}],
    "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "metadata": {"user_id": "u"},
}
RESPONSE: dict[str, Any] = {
    "model": "any",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "Look."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "There."},
                {"type": "input_image", "image_url": "https://pictures.example/1", "detail": "auto"},
            ],
        },
        {"type": "reasoning", "id": "r", "summary": []},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "seen"}]},
    ],
    "max_output_tokens": 9,
    "temperature": 0.5,
    "seed": 3,
    "stop": ["END"],
    "n": 1,
    "top_logprobs": 0,
    "include": ["reasoning.encrypted_content"],
    "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": True}],
    "tool_choice": {"type": "function", "name": "look"},
    "parallel_tool_calls": False,
    "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "store": False,
    "metadata": {"a": "b"},
}
DIALECTS: Mapping[str, tuple[Dialect, dict[str, Any], Kinds]] = {
    "messages": (Messages(), MESSAGE, {**messages_fields.FIELDS, **messages_fields.ASKED}),
    "responses": (Responses(), RESPONSE, responses_fields.FIELDS),
}
ODD: tuple[Any, ...] = (True, 5, 1.5, "x", [], [5], ["x"], [[]], {}, {"type": 5})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where something stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, found in inner:
        yield (*path, name)
        yield from paths_in(found, (*path, name))


def replaced(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed: Any = copy.deepcopy(body)
    at = changed
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return dict(changed)


def asked(name: str, **changes: Any) -> dict[str, Any]:
    """Give what the engine is asked when something in a whole request is changed."""
    dialect, body, _ = DIALECTS[name]
    return dialect.ask(body | changes, PLAIN_SAMPLING).upstream


def refusal(name: str, **changes: Any) -> FieldError:
    with pytest.raises(FieldError) as raised:
        asked(name, **changes)
    return raised.value


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, (_, _, kinds) in DIALECTS.items() for field in kinds]
)
def test_a_field_of_another_kind_is_refused_by_its_name(name: str, field: str) -> None:
    kind = DIALECTS[name][2][field]
    misfits = [value for value in ODD if not kind.fits(value)]
    assert len(misfits) >= 4
    for value in misfits:
        error = refusal(name, **{field: value})
        assert error.param == field
        assert str(error).startswith(f"expected {field} to be {kind.words}, got ")


@pytest.mark.parametrize("name", DIALECTS)
def test_an_odd_value_anywhere_is_answered_or_refused(name: str) -> None:
    """No value in no place is a bug of ours, while it is read or when the answer quotes it."""
    body = DIALECTS[name][1]
    taken = [is_answered(name, replaced(body, path, value)) for path in paths_in(body) for value in ODD]
    assert {*taken} == {True, False}


@pytest.mark.parametrize("name", DIALECTS)
@given(data=st.data())
def test_whatever_stands_anywhere_is_answered_or_refused(name: str, data: st.DataObject) -> None:
    body = DIALECTS[name][1]
    path = data.draw(st.sampled_from([*paths_in(body)]))
    value = data.draw(JSON | st.sampled_from(["disabled", "none", "text", "message", "image"]))
    is_answered(name, replaced(body, path, value))


def is_answered(name: str, body: dict[str, Any]) -> bool:
    """Whether a request is understood; then it is answered too, whole and as a stream."""
    dialect = DIALECTS[name][0]
    try:
        ask = dialect.ask(body, PLAIN_SAMPLING)
    except RejectedError as error:
        assert "expected" in str(error)  # noqa: PT017 - either way is right
        return False
    orjson.dumps(ask.upstream)
    choice = {"index": 0, "message": {"content": "a"}, "finish_reason": "stop", "stop_reason": "END"}
    answer = {"id": "1", "created": 1, "choices": [choice]}
    assert orjson.loads(dialect.answer(ask, answer, b"", "any"))["model"] == "any"
    chunk = {"id": "1", "created": 1, "choices": [{"index": 0, "delta": {"content": "a"}}]}
    translator = dialect.translator(ask, "any")
    assert translator.chunk(chunk, b"") + translator.ending(Capture(), None)
    return True


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("messages", {"system": 5}, "system to be a text or a list, got a number: correct it"),
        ("messages", {"thinking": "x"}, "thinking to be an object, got 'x'"),
        ("messages", {"thinking": {}}, "thinking.type to be enabled or disabled or adaptive"),
        ("messages", {"max_tokens": None}, "max_tokens to be a positive integer, got nothing: set it"),
        ("messages", {"messages": [5]}, "messages to be a list of one object or more, got a list"),
        ("messages", {"mcp_servers": [{}]}, "no mcp_servers, got one"),
        ("messages", {"tools": []}, "tools beside a tool_choice that forces one, got none"),
        ("messages", {"tools": [{"name": 5}]}, "tools.0.name to be a text, got a number"),
        ("responses", {"text": {"format": "json"}}, "text.format to be an object, got 'json'"),
        ("responses", {"reasoning": {"effort": 5}}, "reasoning.effort to be a text, got a number"),
        ("responses", {"n": 2}, "n to be 1, got another"),
        ("responses", {"top_logprobs": 2}, "no top_logprobs, got one: responses have no logprobs here"),
        ("responses", {"include": ["message.output_text.logprobs"]}, "no message.output_text.logprobs"),
        ("responses", {"tools": None, "tool_choice": "required"}, "tools beside a tool_choice"),
        ("responses", {"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type to be function"),
        ("responses", {"input": [{"type": "function_call_output", "call_id": "c"}]}, "input.0.output to be"),
    ],
)
def test_a_refusal_says_what_was_expected_and_what_came(
    name: str, changes: dict[str, Any], message: str
) -> None:
    assert f"expected {message}" in str(refusal(name, **changes))


@pytest.mark.parametrize("name", DIALECTS)
def test_null_is_a_field_left_out_and_an_unknown_field_changes_nothing(name: str) -> None:
    _, body, kinds = DIALECTS[name]
    optional = [field for field, kind in kinds.items() if not kind.is_required]
    assert len(optional) > 10
    without = {field: value for field, value in body.items() if field not in optional}
    dialect = DIALECTS[name][0]
    expected = dialect.ask(without, PLAIN_SAMPLING).upstream
    changed = without | dict.fromkeys(optional) | {"a_field_of_tomorrow": {"any": ["thing"]}}
    assert dialect.ask(changed, PLAIN_SAMPLING).upstream == expected


@pytest.mark.parametrize("name", DIALECTS)
def test_a_form_and_a_strict_tool_reach_the_engine_and_the_record(name: str) -> None:
    upstream = asked(name)
    assert upstream["response_format"]["json_schema"]["schema"] == SCHEMA
    assert upstream["tools"][0]["function"]["strict"] is True
    plain = {"text": None, "output_config": None, "tool_choice": None}
    lax = [
        {key: value for key, value in tool.items() if key != "strict"} for tool in DIALECTS[name][1]["tools"]
    ]
    dialect, body, _ = DIALECTS[name]
    for more, is_narrowed in (({}, True), ({"tools": lax}, False)):
        ask = dialect.ask(body | plain | more, PLAIN_SAMPLING)
        assert (SamplingConstraint.STRUCTURED_OUTPUT in ask.sampling.constraints) is is_narrowed
    assert "response_format" not in asked(name, **plain)
    assert "strict" not in asked(name, tools=lax)["tools"][0]["function"]


def test_an_empty_system_is_no_message() -> None:
    assert chat_of(MESSAGE | {"system": []})["messages"][0]["role"] == "user"
