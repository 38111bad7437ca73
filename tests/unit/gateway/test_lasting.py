"""Work that lasts: it begins again after a bug, and is over when its owner is."""

import asyncio

import pytest

from gateway.lasting import Lasting


async def test_a_bug_is_told_and_the_work_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.lasting.RESTART_S", 0.0)
    begun, told, is_well = 0, 0, asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise ZeroDivisionError
        is_well.set()
        await asyncio.get_running_loop().create_future()

    def tell() -> None:
        nonlocal told
        told += 1

    lasting = Lasting(work, log_event="work_failed", on_bug=tell)
    lasting.begin()
    async with asyncio.timeout(10):
        await is_well.wait()
    await lasting.end()
    assert (begun, told) == (3, 2)


async def test_what_was_ended_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.lasting.RESTART_S", 0.0)
    begun, was_told = 0, asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        raise ZeroDivisionError

    lasting = Lasting(work, log_event="work_failed", on_bug=was_told.set)
    lasting.begin()
    await was_told.wait()
    await lasting.end()
    num_begun = begun
    for _ in range(10):
        await asyncio.sleep(0)
    assert begun == num_begun
