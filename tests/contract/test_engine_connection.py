"""Our short road through aiohttp's pool sees what aiohttp's own client sees."""

import asyncio
from collections.abc import AsyncIterator
from io import BytesIO

import aiohttp
import pytest
from aiohttp import web

from gateway.engine_connection import ConnectionClosedError, EngineDoor, EngineDownError
from schemas.errors import UnavailableError

BIG = b"x" * 3_000_000


async def whole(request: web.Request) -> web.Response:
    return web.Response(body=await request.read(), headers={"Retry-After": "3"})


async def refused(request: web.Request) -> web.Response:
    return web.Response(status=429, body=b"no")


async def pieces(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for number in range(5):
        await answer.write(b"%d;" % number)
        await asyncio.sleep(0.01)
    return answer


async def until_closed(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Connection": "close"})
    await answer.prepare(request)
    await answer.write(b"all")
    return answer


async def broken(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": "100"})
    await answer.prepare(request)
    await answer.write(b"half")
    assert request.transport is not None
    request.transport.close()
    return answer


async def dropped(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    app = web.Application(client_max_size=64 * 1_048_576)
    for handler in (whole, refused, pieces, until_closed, broken, dropped):
        app.router.add_post(f"/prefix/{handler.__name__}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/prefix"
    await runner.cleanup()


@pytest.fixture
async def connector() -> AsyncIterator[aiohttp.TCPConnector]:
    found = aiohttp.TCPConnector(limit=0)
    yield found
    await found.close()


@pytest.mark.parametrize("path", ["/whole", "/refused", "/pieces", "/until_closed"])
@pytest.mark.parametrize("body", [b"", b"{}", BIG], ids=["empty", "small", "big"])
async def test_answers_are_those_of_aiohttps_own_client(
    url: str, connector: aiohttp.TCPConnector, path: str, body: bytes
) -> None:
    door = EngineDoor(url, connector)
    async with aiohttp.ClientSession() as session:
        async with session.post(url + path, data=BytesIO(body)) as theirs:
            expected = (theirs.status, theirs.headers.get("Retry-After"), await theirs.read())
        for _ in range(3):  # a connection that was used before answers as a new one does
            ours = await door.post(path, body)
            assert (ours.status, ours.retry_after, await ours.read()) == expected


async def test_a_connection_is_used_again_and_one_that_was_closed_is_not(
    url: str, connector: aiohttp.TCPConnector
) -> None:
    door = EngineDoor(url, connector)
    for _ in range(3):
        await (await door.post("/whole", b"1")).read()
    assert sum(len(idle) for idle in connector._conns.values()) == 1
    (await door.post("/whole", b"1")).close()
    assert not connector._conns


async def test_pieces_come_as_they_are_written(url: str, connector: aiohttp.TCPConnector) -> None:
    answer = await EngineDoor(url, connector).post("/pieces", b"")
    found = []
    while piece := await answer.read_some():
        found.append(piece)
    assert b"".join(found) == b"0;1;2;3;4;"
    assert len(found) > 1
    answer.release()


async def test_what_breaks_is_told_apart(url: str, connector: aiohttp.TCPConnector) -> None:
    door = EngineDoor(url, connector)
    with pytest.raises(UnavailableError) as raised:
        await (await door.post("/broken", b"")).read()
    assert raised.value.reason == "engine_broke_off"
    with pytest.raises(ConnectionClosedError):
        await door.post("/dropped", b"")
    with pytest.raises(EngineDownError):
        await EngineDoor("http://127.0.0.1:1", connector).post("/whole", b"")
