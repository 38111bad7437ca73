"""Whatever a client does wrong, it is told in JSON: what was expected, what came, what to do."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from gateway.auth import Grant, Scope, Token, digest_of
from tests.gateway_rig import RELEASE, GatewayRig, running_gateway, with_settings
from tests.scripted_upstream import ScriptedUpstream

CHAT = "/v1/chat/completions"
BODY: Any = {"model": "any", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def http(gateway: GatewayRig) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, trust_env=False) as found:
        yield found


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (("GET", "/nowhere", b""), 404, "no_such_route"),
        (("POST", "/v1/embeddings", b"{}"), 404, "no_such_route"),
        (("GET", CHAT, b""), 405, "method_not_allowed"),
        (("PUT", "/v1/models", b""), 405, "method_not_allowed"),
        (("POST", CHAT, b"{"), 400, "bad_json"),
        (("POST", CHAT, b""), 400, "bad_json"),
        (("POST", CHAT, b'{"a":"\xff"}'), 400, "bad_json"),
        (("POST", CHAT, b'{"temperature":NaN}'), 400, "bad_json"),
        (("POST", CHAT, b"[1]"), 400, "bad_json"),
        (("POST", CHAT, b"{}"), 400, "bad_field"),
        (("POST", CHAT, b'{"messages":"hi"}'), 400, "bad_field"),
        (("POST", CHAT, b'{"messages":[],"temperature":true}'), 400, "bad_field"),
        (("POST", CHAT, b'{"messages":[],"seed":1.5}'), 400, "bad_field"),
        (("POST", CHAT, b'{"messages":[],"structured_outputs":[5]}'), 400, "bad_field"),
        (("POST", CHAT, b'{"messages":[],"top_logprobs":2}'), 400, "bad_field"),
        (("POST", CHAT, b'{"messages":[],"stream":"false"}'), 400, "bad_field"),
        (("POST", "/v1/completions", b'{"prompt":"a","stream":1}'), 400, "bad_field"),
        (("POST", "/v1/responses", b'{"input":"a","tools":5}'), 400, "bad_field"),
        (("POST", "/v1/responses", b'{"input":[{"role":[],"content":"a"}]}'), 400, "bad_field"),
        (("GET", "/reef/records/", b""), 404, "no_such_route"),
        (("GET", "/reef/scenarios/", b""), 404, "no_such_route"),
        (("POST", CHAT, b" " * 1_048_577), 413, "body_too_large"),
    ],
)
def test_a_bad_request_is_refused_in_json(
    http: httpx.Client, request_: tuple[str, str, bytes], status: int, code: str
) -> None:
    method, path, body = request_
    answer = http.request(method, path, content=body, headers={"x-request-id": "r-1"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert error.keys() == {"message", "type", "param", "code"}
    assert "expected" in error["message"]
    assert answer.headers["x-request-id"] == "r-1"


def test_a_body_that_comes_in_chunks_has_the_same_limit(http: httpx.Client) -> None:
    answer = http.post(CHAT, content=(b"x" * 65_536 for _ in range(20)))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


def test_what_is_no_http_is_answered_in_json_too(gateway: GatewayRig) -> None:
    url = httpx.URL(gateway.url)
    assert url.port is not None
    with socket.create_connection((url.host, url.port), timeout=20) as connection:
        connection.sendall(b"BROKEN\r\n\r\n")
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "bad_http"


def test_anthropics_paths_have_anthropics_errors(http: httpx.Client) -> None:
    answer = http.post("/v1/messages", content=b"{")
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    assert answer.json()["error"].keys() == {"type", "message"}
    assert http.get("/v1/messages").json()["type"] == "error"


@pytest.mark.parametrize("more", [{"tools": 5}, {"tools": [{"name": "a"}], "tool_choice": {"type": []}}])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_tools_of_another_shape_are_no_bug_of_ours(http: httpx.Client, path: str, more: Any) -> None:
    answer = http.post(path, json={**BODY, "max_tokens": 3, **more})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_tools_that_are_no_list_are_for_the_engine_to_refuse(
    http: httpx.Client, upstream: ScriptedUpstream
) -> None:
    assert http.post(CHAT, json={**BODY, "tools": 5}).status_code == 200
    assert upstream.asked[-1]["tools"] == 5


def test_a_clients_own_salt_stays_one_that_engines_take(
    http: httpx.Client, upstream: ScriptedUpstream
) -> None:
    http.post(CHAT, json={**BODY, "cache_salt": "s" * 100})
    salted = upstream.asked[-1]["cache_salt"]
    assert salted != RELEASE
    assert len(salted) == 64


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-reef-no-train", "perhaps"), ("x-reef-no-record", "2"), ("x-reef-tag-a", "x" * 1_025)],
)
def test_a_header_that_would_be_misread_is_refused(http: httpx.Client, name: str, value: str) -> None:
    answer = http.post(CHAT, json=BODY, headers={name: value})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_header")


def test_a_typo_in_the_scenario_names_the_near_one_and_makes_none(upstream: ScriptedUpstream) -> None:
    """CASES 11."""
    with (
        running_gateway([upstream.url], scenarios=("coding", "support")) as gateway,
        httpx.Client(base_url=gateway.url, trust_env=False) as http,
    ):
        answer = http.post(CHAT, json=BODY, headers={"x-reef-scenario": "codng"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_such_scenario")
        assert "'coding'" in answer.json()["error"]["message"]
        assert gateway.catalog.names() == ("coding", "support")
        without = http.post(CHAT, json=BODY)
        assert (without.status_code, without.json()["error"]["code"]) == (400, "scenario_required")
        assert "coding, support" in without.json()["error"]["message"]
        assert http.post(CHAT, json=BODY, headers={"x-reef-scenario": "CODING"}).status_code == 200


def test_only_the_first_release_may_be_named(http: httpx.Client) -> None:
    assert http.post(CHAT, json=BODY, headers={"x-reef-release-id": RELEASE}).status_code == 200
    other = http.post(CHAT, json=BODY, headers={"x-reef-release-id": "b" * 40})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "release_not_pinnable")
    assert http.post(CHAT, json=BODY, headers={"x-reef-unknown": "1"}).status_code == 200


def token(secret: bytes, *scopes: Scope, scenarios: tuple[str, ...] = ("*",)) -> Token:
    grant = Grant(scopes=frozenset(scopes), scenarios=frozenset(scenarios))
    return Token(digest=digest_of(secret), grant=grant)


@pytest.fixture
def guarded(upstream: ScriptedUpstream) -> Iterator[httpx.Client]:
    """A gateway with one more route behind the fast ones, and two tokens of one scope each."""
    things = APIRouter()

    @things.get("/reef/things/{name}")
    @things.post("/reef/things/{name}")
    async def thing(name: str) -> str:
        return name

    tokens = (token(b"infers", "infer"), token(b"reads", "read"), token(b"all", "read", "admin"))
    with (
        running_gateway([upstream.url], tokens=tokens, routers=(things,)) as gateway,
        httpx.Client(base_url=gateway.url, trust_env=False) as found,
    ):
        yield found


def test_every_method_of_a_path_is_allowed_by_name(guarded: httpx.Client) -> None:
    answer = guarded.put("/reef/things/any", headers={"x-api-key": "all"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"


def test_tokens_open_what_they_name_and_nothing_else(upstream: ScriptedUpstream) -> None:
    tokens = (token(b"infers", "infer", scenarios=("coding",)), token(b"reads", "read"))
    with (
        running_gateway([upstream.url], scenarios=("coding", "support"), tokens=tokens) as gateway,
        httpx.Client(base_url=gateway.url, trust_env=False) as http,
    ):

        def status(path: str, **headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            sends = BODY if path == CHAT else None
            return http.request("POST" if sends else "GET", path, json=sends, headers=named).status_code

        assert status("/healthz") == 200
        assert status(CHAT) == 401
        assert status(CHAT, authorization="Bearer other") == 401
        assert status(CHAT, authorization="Bearer infers", x_reef_scenario="coding") == 200
        assert status(CHAT, x_api_key="infers", x_reef_scenario="coding") == 200
        assert status(CHAT, x_api_key="infers", x_reef_scenario="support") == 403
        assert status(CHAT, x_api_key="infers", x_reef_scenario="nowhere") == 403
        assert status(CHAT, x_api_key="reads", x_reef_scenario="coding") == 403
        assert status("/metrics", x_api_key="reads") == 200
        assert status("/metrics", x_api_key="infers") == 403
        assert status("/v1/models", x_api_key="infers", x_reef_scenario="coding") == 200
        assert status("/nowhere") == 401
        assert status("/nowhere", authorization="Bearer other") == 401


@pytest.mark.parametrize("path", ["/nowhere", "/v1/embeddings", "/reef/nowhere", "/healthz/more"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_route_is_unknown_to_every_token(guarded: httpx.Client, method: str, path: str) -> None:
    for secret in ("infers", "reads"):
        answer = guarded.request(method, path, headers={"x-api-key": secret})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_such_route")


@pytest.mark.parametrize(
    ("method", "path", "secret"),
    [
        ("POST", "/v1/models", "reads"),
        ("GET", CHAT, "reads"),
        ("POST", "/metrics", "infers"),
        ("GET", "/reef/things/any", "infers"),
        ("DELETE", "/reef/things/any", "reads"),
    ],
)
def test_a_known_route_tells_nothing_to_a_token_without_its_scope(
    guarded: httpx.Client, method: str, path: str, secret: str
) -> None:
    answer = guarded.request(method, path, headers={"x-api-key": secret})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def test_more_calls_than_allowed_are_sent_away_for_a_while(upstream: ScriptedUpstream) -> None:
    with (
        running_gateway([upstream.url], settings=with_settings(concurrency_max=0)) as gateway,
        httpx.Client(base_url=gateway.url, trust_env=False) as http,
    ):
        answer = http.post(CHAT, json=BODY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "over_concurrency")
        assert int(answer.headers["retry-after"]) >= 1


def test_bodies_beyond_what_is_held_at_once_are_sent_away_for_a_while(
    http: httpx.Client, gateway: GatewayRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.exchange.BODIES_BYTES_MAX", 1_000)
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as other:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2000\r\n\r\n"
        other.sendall(head.encode() + b" " * 1_500)
        ends_s = time.monotonic() + 20
        answer = http.post(CHAT, json=BODY)
        while answer.status_code == 200 and time.monotonic() < ends_s:
            answer = http.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "over_concurrency")
    assert int(answer.headers["retry-after"]) >= 1
    while answer.status_code == 429 and time.monotonic() < ends_s:
        answer = http.post(CHAT, json=BODY)
    assert answer.status_code == 200
    large = {**BODY, "user": "x" * 2_000}
    assert http.post(CHAT, json=large).status_code == 200, "one alone may be larger"


def test_a_full_outbox_that_refuses_sends_new_calls_away(http: httpx.Client, gateway: GatewayRig) -> None:
    gateway.recorder.is_full = True
    answer = http.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "outbox_full")
    assert int(answer.headers["retry-after"]) >= 1


def test_an_answer_that_cannot_be_recorded_is_given_without_a_receipt(
    http: httpx.Client, gateway: GatewayRig
) -> None:
    gateway.recorder.is_broken = True
    answer = http.post(CHAT, json=BODY)
    assert answer.status_code == 200
    assert "x-reef-agent-record-id" not in answer.headers
    stream = http.post(CHAT, json={**BODY, "stream": True})
    assert stream.text.endswith("data: [DONE]\n\n")
    assert '"reef"' not in stream.text
    assert "reef_gateway_events_lost_total" in http.get("/metrics").text


def test_a_call_that_must_not_be_recorded_leaves_nothing(http: httpx.Client, gateway: GatewayRig) -> None:
    answer = http.post(CHAT, json=BODY, headers={"x-reef-no-record": "true"})
    assert answer.status_code == 200
    assert "x-reef-agent-record-id" not in answer.headers
    assert answer.headers["x-reef-release-id"] == RELEASE
    assert gateway.recorder.events == []


def test_a_call_that_must_not_be_trained_says_so(http: httpx.Client, gateway: GatewayRig) -> None:
    answer = http.post(CHAT, json=BODY, headers={"x-reef-no-train": "true"})
    assert gateway.recorder.call(answer.headers["x-reef-agent-record-id"]).is_opted_out


def test_the_receipt_may_stand_in_the_header_only(upstream: ScriptedUpstream) -> None:
    with (
        running_gateway([upstream.url], settings=with_settings(stream_receipt="header")) as gateway,
        httpx.Client(base_url=gateway.url, trust_env=False) as http,
    ):
        answer = http.post(CHAT, json={**BODY, "stream": True})
        assert answer.headers["x-reef-agent-record-id"].startswith("rec_")
        assert '"reef"' not in answer.text


def test_health_needs_an_engine_and_a_release(http: httpx.Client, gateway: GatewayRig) -> None:
    assert http.get("/healthz").json() == {"ok": True}
    assert http.get("/readyz").json() == {"ok": True, "problems": {}}
    gateway.catalog.add(gateway.catalog.names()[0]).serving = None
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["problems"].keys()) == (503, {"release"})
    call = http.post(CHAT, json=BODY)
    assert (call.status_code, call.json()["error"]["code"]) == (503, "no_release")


def test_the_model_names_the_release_behind_it(http: httpx.Client) -> None:
    (model,) = http.get("/v1/models").json()["data"]
    assert model["reef"] == {"scenario": "default", "release_id": RELEASE, "release_seq": 0}
    assert http.get(f"/v1/models/{model['id']}").json()["id"] == model["id"]


def test_one_line_a_request_and_none_of_it_is_text(http: httpx.Client, gateway: GatewayRig) -> None:
    secret = "a very private question"
    answer = http.post(CHAT, json={**BODY, "messages": [{"role": "user", "content": secret}]})
    line: dict[str, Any] = gateway.lines[-1]
    assert line["receipt"] == answer.headers["x-reef-agent-record-id"]
    assert (line["status"], line["result"], line["num_tokens"]) == (200, "completed", 1)
    assert line["duration_ms"] > 0
    assert secret not in str(gateway.lines)
    assert "Paris" not in str(gateway.lines)


def test_calls_wait_at_the_gate_and_are_sent_away_at_its_deadline(
    http: httpx.Client, gateway: GatewayRig
) -> None:
    assert gateway.gate is not None
    gateway.gate.close()
    answer = http.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "swapping")
    gateway.gate.open()
    assert http.post(CHAT, json=BODY).status_code == 200
