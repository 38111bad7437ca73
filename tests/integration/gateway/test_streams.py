"""Streams are passed on as they come, whatever becomes of the client or of the engine (CASES 3 and 8)."""

import asyncio
import random
from collections import deque
from typing import Any

import aiohttp
import orjson
import pytest

from deploy.ports import free_port
from schemas.events import CallOutcome, CaptureFault
from schemas.ids import RECEIPT_PREFIX
from schemas.packed import floats, tokens
from tests.gateway_rig import GatewayRig, running_gateway, with_settings
from tests.scripted_upstream import Script, ScriptedToken, ScriptedUpstream, running_upstream, words

CHAT = "/v1/chat/completions"
BODY: Any = {"model": "any", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
LONG = words(" ".join(f"w{n}" for n in range(200)), first_id=1_000)


async def pieces_until(content: aiohttp.StreamReader, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        seen += await content.readany()
    return seen


async def whole_or_not(content: aiohttp.StreamReader) -> tuple[bytes, bool]:
    """Read to the end; whether HTTP says that it was one."""
    seen = b""
    try:
        async for piece in content.iter_any():
            seen += piece
    except aiohttp.ClientPayloadError:
        return seen, False
    return seen, True


async def test_a_client_that_leaves_cancels_the_engine_and_its_tokens_are_kept(
    gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(LONG,), stalls_after=57, prompt_ids=(1, 2))
    async with aiohttp.ClientSession() as session, session.post(gateway.url + CHAT, json=BODY) as answer:
        receipt = answer.headers["x-reef-agent-record-id"]
        await pieces_until(answer.content, b"w56 ")
        answer.close()
        left = await asyncio.to_thread(upstream.left.acquire, True, 1.0)
    assert left, "the engine still works for nobody"
    call = await asyncio.to_thread(gateway.recorder.call, receipt)
    assert call.outcome is CallOutcome.CLIENT_ABORTED
    assert list(tokens(call.choices[0].token_ids)) == list(range(1_000, 1_057))
    assert (call.usage.prompt, call.usage.completion) == (2, 57)
    assert call.choices[0].finish_reason is None


@pytest.mark.parametrize("how", ["breaks_after", "fails_after"])
async def test_an_engine_that_breaks_off_ends_the_stream_without_its_end(
    gateway: GatewayRig, upstream: ScriptedUpstream, how: str
) -> None:
    changes: Any = {how: 57}
    upstream.script = Script(choices=(LONG,), **changes)
    async with aiohttp.ClientSession() as session, session.post(gateway.url + CHAT, json=BODY) as answer:
        receipt = answer.headers["x-reef-agent-record-id"]
        seen, is_whole = await whole_or_not(answer.content)
    assert not is_whole, "the connection must close"
    assert b'data: {"error":{' in seen
    assert b"[DONE]" not in seen
    assert b'"reef"' not in seen
    call = await asyncio.to_thread(gateway.recorder.call, receipt)
    assert call.outcome is CallOutcome.UPSTREAM_FAILED
    assert len(tokens(call.choices[0].token_ids)) == 57
    assert call.usage.completion == 57


async def test_a_client_that_leaves_a_buffered_call_cancels_it_too(
    gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(stalls_after=0)
    body = {**BODY, "stream": False}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.5)) as session:
        with pytest.raises(TimeoutError):
            await session.post(gateway.url + CHAT, json=body)
    assert await asyncio.to_thread(upstream.left.acquire, True, 1.0)
    call = await asyncio.to_thread(gateway.recorder.next_call)
    assert call.outcome is CallOutcome.CLIENT_ABORTED
    assert call.choices == ()


async def test_an_engine_that_is_too_slow_costs_the_deadline_and_no_more(upstream: ScriptedUpstream) -> None:
    upstream.script = Script(stalls_after=0)
    with running_gateway([upstream.url], settings=with_settings(timeout_s=0.5)) as gateway:
        async with (
            aiohttp.ClientSession() as session,
            session.post(gateway.url + CHAT, json={**BODY, "stream": False}) as answer,
        ):
            error = (await answer.json())["error"]
        assert (answer.status, error["code"]) == (504, "engine_slow")
        assert await asyncio.to_thread(upstream.left.acquire, True, 1.0)


async def test_a_stream_that_is_too_slow_breaks_at_the_deadline(upstream: ScriptedUpstream) -> None:
    upstream.script = Script(choices=(LONG,), stalls_after=3)
    with running_gateway([upstream.url], settings=with_settings(timeout_s=0.5)) as gateway:
        async with aiohttp.ClientSession() as session, session.post(gateway.url + CHAT, json=BODY) as answer:
            seen, is_whole = await whole_or_not(answer.content)
        assert not is_whole
        assert b"engine_slow" in seen


async def deaf_call(gateway: GatewayRig, body: Any) -> asyncio.StreamWriter:
    """Send a call and read nothing of its answer."""
    host, port = gateway.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1)
    sent = orjson.dumps(body)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(sent)}\r\n\r\n"
    writer.write(head.encode() + sent)
    await writer.drain()
    return writer


def script_for(asked: dict[str, Any]) -> Script:
    """Answer `Hello` with more than sockets hold, and all else with a word."""
    is_deaf = asked["messages"][0]["content"] == "Hello"
    return Script(choices=(words(" ".join(["x" * 1_048_576] * 24)),)) if is_deaf else Script()


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_that_does_not_take_its_answer_holds_no_place_for_ever(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    monkeypatch.setattr("gateway.exchange.LAST_S_MAX", 0.2)
    upstream.script = script_for
    settings = with_settings(timeout_s=4.0, concurrency_max=1)
    other = {**BODY, "messages": [{"role": "user", "content": "Are you there?"}]}
    with running_gateway([upstream.url], settings=settings) as gateway:
        writer = await deaf_call(gateway, {**BODY, "stream": is_stream})
        call = await asyncio.to_thread(gateway.recorder.next_call)
        assert call.outcome is (CallOutcome.CLIENT_ABORTED if is_stream else CallOutcome.COMPLETED)
        async with aiohttp.ClientSession() as session, asyncio.timeout(20):
            while True:
                async with session.post(gateway.url + CHAT, json=other) as answer:
                    if answer.status == 200:
                        break
                    assert answer.status == 429
            writer.transport.abort()
            async with session.post(gateway.url + CHAT, json=other) as answer:
                assert answer.status == 200


async def test_an_engine_that_is_down_is_said_at_once_and_used_again_when_it_is_back() -> None:
    with running_upstream() as upstream:
        url = upstream.url
    with running_gateway([url]) as gateway:
        async with aiohttp.ClientSession() as session:
            async with session.post(gateway.url + CHAT, json=BODY) as answer:
                error = (await answer.json())["error"]
                assert (answer.status, error["code"]) == (503, "engine_down")
                assert int(answer.headers["retry-after"]) >= 1
            again = ScriptedUpstream(port=upstream.port)
            await again.start()
            async with session.post(gateway.url + CHAT, json=BODY) as answer:
                assert answer.status == 200
                assert (await answer.read()).endswith(b"data: [DONE]\n\n")
            await again.stop()


async def test_a_call_may_wait_for_an_engine_that_is_down() -> None:
    with running_upstream() as upstream:
        url = upstream.url
    with running_gateway([url], engine_wait_s=10.0) as gateway:
        async with aiohttp.ClientSession() as session:
            asking = asyncio.create_task(session.post(gateway.url + CHAT, json=BODY))
            await asyncio.sleep(0.1)
            again = ScriptedUpstream(port=upstream.port)
            await again.start()
            async with await asking as answer:
                assert answer.status == 200
            await again.stop()


@pytest.mark.parametrize(
    ("raw", "is_stream"), [(b"<html>", False), (b"[]", False), (b'{"choices":1}', False), (b"{}", False)]
)
async def test_nonsense_from_the_engine_is_a_bad_gateway(
    gateway: GatewayRig, upstream: ScriptedUpstream, raw: bytes, is_stream: bool
) -> None:
    upstream.script = Script(raw=raw)
    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + CHAT, json={**BODY, "stream": is_stream}) as answer,
    ):
        assert (answer.status, (await answer.json())["error"]["code"]) == (502, "engine_nonsense")
    assert gateway.recorder.events == []


async def test_several_engines_share_the_load_and_a_dead_one_is_passed_by() -> None:
    with running_upstream() as one, running_upstream() as two:
        with running_gateway([one.url, two.url]) as gateway:
            async with aiohttp.ClientSession() as session:
                await asyncio.gather(*(_asked(session, gateway.url, f"q{n}") for n in range(40)))
                assert min(len(one.asked), len(two.asked)) >= 5
                before = len(one.asked)
                for _ in range(5):
                    await _asked(session, gateway.url, "the same question")
                assert len(one.asked) - before in (0, 5), "a route keeps its engine"
        gone = f"http://127.0.0.1:{free_port()}"
        with running_gateway([gone, two.url]) as gateway:
            async with aiohttp.ClientSession() as session:
                answers = await asyncio.gather(*(_asked(session, gateway.url, f"q{n}") for n in range(20)))
        assert {status for status, _ in answers} == {200}


async def test_500_streams_at_once_all_come_to_their_end(
    gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("one two three four"),), chunk_delay_s=0.05)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        answers = await asyncio.gather(*(_asked(session, gateway.url, f"q{n}", True) for n in range(500)))
    assert {status for status, _ in answers} == {200}
    assert all(body.endswith(b"data: [DONE]\n\n") for _, body in answers)
    assert len({call.receipt for call in gateway.recorder.calls()}) == 500
    assert {call.capture_faults for call in gateway.recorder.calls()} == {()}


async def test_a_thousand_random_calls_are_recorded_as_they_were_generated(
    gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    """CASES 3: ids and logprobs are the engine's own, also where the network cuts inside a character."""
    rng = random.Random(20_261)
    scripts = [random_script(rng) for _ in range(1_000)]
    upstream.script = lambda asked: scripts[int(asked["messages"][-1]["content"])]
    waiting = deque(range(1_000))
    receipts: dict[int, str] = {}
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(_play(session, gateway.url, waiting, receipts) for _ in range(16)))
    by_receipt = {call.receipt: call for call in gateway.recorder.calls()}
    assert len(by_receipt) == len(receipts) == 1_000
    for number, receipt in receipts.items():
        call, script = by_receipt[receipt], scripts[number]  # type: ignore[index]  # receipts came as text
        assert list(tokens(call.prompt_token_ids)) == list(script.prompt_ids)
        assert call.capture_faults == ()
        for choice, produced in zip(call.choices, script.choices, strict=True):
            assert list(tokens(choice.token_ids)) == [token.token_id for token in produced]
            assert list(floats(choice.logprobs)) == [token.logprob for token in produced]
        answer = orjson.loads(call.response)
        for written, produced in zip(answer["choices"], script.choices, strict=True):
            assert written["message"]["content"] == "".join(token.text for token in produced)


async def test_ids_that_differ_from_the_engines_count_are_a_gap(
    gateway: GatewayRig, upstream: ScriptedUpstream
) -> None:
    upstream.script = Script(choices=(words("a b"),), num_reported=3)
    async with aiohttp.ClientSession() as session:
        for is_stream in (False, True):
            status, _ = await _asked(session, gateway.url, "x", is_stream)
            assert status == 200
    assert [call.capture_faults for call in gateway.recorder.calls()] == [(CaptureFault.TOKEN_GAP,)] * 2


async def _play(
    session: aiohttp.ClientSession, url: str, waiting: deque[int], receipts: dict[int, str]
) -> None:
    while waiting:
        number = waiting.popleft()
        messages = [{"role": "user", "content": str(number)}]
        body = {"model": "m", "messages": messages, "stream": number % 2 == 0}
        async with session.post(url + CHAT, json=body) as answer:
            assert answer.status == 200
            await answer.read()
            receipts[number] = answer.headers["x-reef-agent-record-id"]
            assert receipts[number].startswith(RECEIPT_PREFIX)


async def _asked(
    session: aiohttp.ClientSession, url: str, text: str, is_stream: bool = False
) -> tuple[int, bytes]:
    body = {**BODY, "stream": is_stream, "messages": [{"role": "user", "content": text}]}
    async with session.post(url + CHAT, json=body) as answer:
        return answer.status, await answer.read()


def random_script(rng: random.Random) -> Script:
    """Make an answer of random ids; its text need not encode back to them."""
    letters = 'aé漢🦀 \n"\\'
    choices = [
        [
            ScriptedToken(
                token_id=rng.randrange(2**32),
                text="".join(rng.choices(letters, k=rng.randrange(4))),
                logprob=-rng.randrange(2**16) / 2**12,
            )
            for _ in range(rng.randint(1, 12))
        ]
        for _ in range(rng.randint(1, 3))
    ]
    return Script(
        prompt_ids=[rng.randrange(2**32) for _ in range(rng.randint(1, 20))],
        choices=choices,
        write_bytes=rng.choice([None, None, None, 7, 100]) if rng.random() > 0.02 else 1,
    )
