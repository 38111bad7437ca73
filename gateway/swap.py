"""Shell: the hot swap: engines that go on answering get the weights of another release, forward or back.

Not the deciding when, nor what follows a failure: gateway/swapping.py. Adapters take another road, without a
pause: gateway/adapters.py.

Next: schemas/events/serving.py
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gateway.catalog import Catalog
from gateway.gate import Gate
from gateway.serving import OpenStreams
from gateway.target import Content, Target, ahead_id, first_ranks
from gateway.weight_routes import WeightRoutes, WorkerStaging
from gateway.weight_sender import WeightSender, not_staged
from schemas.errors import ConflictError, ReefError, UnavailableError
from schemas.ids import SwapId

LOOK_S = 0.5
"""Between two looks at a staging whose end the sender tells; each waits for a step of the engine."""
FOLDER_LOOK_S = 0.05
"""The same where there is no sender."""
SETTLE_S_MAX = 0.1
"""A worker fails when its sender dies; how long the sender's own word is waited for."""
GAP_WATCH_S = 1.0
"""How long after a swap gaps of streams still count as its."""
ABANDON_S_MAX = 5.0
RESUME_S_MAX = 5.0
"""Of undoing a pause that came to nothing."""


class FinishError(UnavailableError):
    """An engine was paused and does not hold what it should: only a restart makes it answer again."""


class Clock(Protocol):
    """The loop's clock."""

    def time(self) -> float:
        """Seconds, from anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapParts:
    """What a swap works with."""

    catalog: Catalog
    """Every scenario's open streams: all are frozen, whoever's release it is."""
    gate: Gate
    """Holds new calls while engines are paused."""
    sender: WeightSender | None
    """None with the transport `folder`."""
    transport: str
    """`nccl`, `gloo` or `folder`."""
    deadline_s: float
    """Of the whole, from staging to resuming."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapped:
    """A swap that was carried out."""

    num_bytes: int
    """Weights moved."""
    stage_s: float
    """While the old release served."""
    pause_s: float
    """From sending the pause to the answer of the resume."""
    gap_s: float
    """Largest of any stream until one second after."""
    total_s: float
    """From taking the request to resuming."""


class Swap:
    """One try."""

    def __init__(self, parts: SwapParts, engines: Sequence[WeightRoutes]) -> None:
        """Take every engine that is to hold the release."""
        self._parts, self._engines = parts, engines
        self._clock: Clock = asyncio.get_running_loop()
        self._late_at_s = 0.0

    async def carry_out(
        self,
        target: Target,
        folder: Path,
        *,
        taken_s: float,
        is_wanted: Callable[[], bool],
        flip: Callable[[], None],
        staged_ahead_s: float | None = None,
    ) -> Swapped:
        """Give the engines a release's weights while they answer.

        1. Stage them on every worker, while the old release serves (`_stage`), unless that was done ahead;
           `staged_ahead_s` says that it was, and how long it took.
        2. Close the gate and pause: what runs is frozen with its KV, none is lost.
        3. Look whether every worker has them; if not, resume and go back to 1.
        4. Finish: exchange the weights and name them.
        5. Ask every engine which release it holds.
        6. `flip`: close the spans of open streams, and let new calls be the new release's.
        7. Resume and open the gate.
        8. Watch the streams for a second.

        Raises:
            ReefError: nothing happened to the engines.
            FinishError: they are paused, and must be restarted; the gate is closed.
        """
        began_s, stage_s = self._begun_s(), staged_ahead_s or 0.0
        done = None if staged_ahead_s is None else await self._swapped_in(target, flip)
        if done is None:
            await self._stage(target.swap_id, folder, is_wanted)
            stage_s = self._clock.time() - began_s
            done = await self._swapped_in(target, flip)
        if done is None:
            raise UnavailableError(
                "expected what was staged to be there still, it is gone: see the engine's log",
                reason="engine_failed",
            )
        num_bytes, pause_s = done
        resumed_s = self._clock.time()
        await asyncio.sleep(GAP_WATCH_S)
        return Swapped(
            num_bytes=num_bytes,
            stage_s=stage_s,
            pause_s=pause_s,
            total_s=resumed_s - taken_s,
            gap_s=max((one.largest_gap_s(self._clock.time()) for one in self._streams()), default=0.0),
        )

    async def stage_ahead(self, content: Content, folder: Path, *, is_wanted: Callable[[], bool]) -> float:
        """Stage what may be requested next, so that its swap begins with the pause; how many seconds it took.

        Nothing is exchanged: what is not requested then makes room for the next staging. Raises ReefError.
        """
        began_s = self._begun_s()
        await self._stage(ahead_id(content.content_sha256), folder, is_wanted)
        return self._clock.time() - began_s

    def _begun_s(self) -> float:
        now_s = self._clock.time()
        self._late_at_s = now_s + self._parts.deadline_s
        return now_s

    async def _stage(self, swap_id: SwapId, folder: Path, is_wanted: Callable[[], bool]) -> None:
        """Have every worker take the weights into a shadow of its model, or change nothing.

        1. Close what an earlier try left open.
        2. Have the sender offer the weights, unless the workers read the folder themselves.
        3. Begin on every worker, and wait until all are ready, or something newer is requested.
        """
        try:
            async with asyncio.timeout(self._left_s()):
                orders = await self._orders(swap_id, folder)
                await self._all(lambda n, engine: engine.begin(orders[n], self._left_s()))
                await self._staged(swap_id, is_wanted)
        except TimeoutError as error:
            await self._abandon()
            raise UnavailableError(
                f"expected {folder.name} to be staged within {self._parts.deadline_s:g} s, it was not: "
                "raise inference.swap_deadline_s",
                reason="deadline",
            ) from error
        except ReefError:
            await self._abandon()
            raise

    async def _orders(self, swap_id: SwapId, folder: Path) -> list[dict[str, Any]]:
        await self._all(self._close_left_over)
        nums_workers = await self._all(lambda _, engine: engine.num_workers(self._left_s()))
        order: dict[str, Any] = {
            "swap_id": swap_id,
            "transport": self._parts.transport,
            "group_size": 1 + sum(nums_workers),
            "deadline_s": self._left_s(),
        }
        if self._parts.sender is None:
            order["folder"] = str(folder)
        else:
            gpu = sum(nums_workers)  # the first that no worker has
            order["port"] = await self._parts.sender.offer({**order, "gpu": gpu}, folder)
        return [{**order, "first_rank": rank} for rank in first_ranks(tuple(nums_workers))]

    async def _close_left_over(self, _: int, engine: WeightRoutes) -> None:
        workers = await engine.staging(self._left_s())
        if any(worker.phase in ("broken", "absent") for worker in workers):
            raise UnavailableError(
                f"expected {engine.url} to take weights, got {workers[0].phase} ({workers[0].detail}): "
                "restart the engine",
                reason="engine_failed",
            )
        if any(worker.is_open for worker in workers):
            await engine.abandon(self._left_s())

    async def _staged(self, swap_id: SwapId, is_wanted: Callable[[], bool]) -> None:
        """Wait for the sender, which waits for the workers, or until one of them fails first."""
        async with AsyncExitStack() as stack:
            sending = self._sending(swap_id)
            if sending is not None:
                stack.callback(sending.cancel)
            while is_wanted():
                if await self._has_staged(sending) and is_wanted():
                    return
        raise ConflictError(
            "expected the release to be wanted still, got a newer request", reason="overtaken"
        )

    async def _has_staged(self, sending: "asyncio.Task[int] | None") -> bool:
        """Wait a while; whether all is staged, as the sender tells, or where there is none the workers."""
        if sending is not None and await _has_ended(sending, LOOK_S):
            sending.result()
            return True
        workers = await self._workers()
        failed = next((w for w in workers if w.phase not in ("staging", "ready")), None)
        if failed is not None:
            if sending is not None and await _has_ended(sending, SETTLE_S_MAX):
                sending.result()
            raise not_staged(failed.detail or failed.phase)
        if sending is not None:
            return False
        is_ready = all(worker.phase == "ready" for worker in workers)
        if not is_ready:
            await asyncio.sleep(FOLDER_LOOK_S)
        return is_ready

    async def _workers(self) -> list[WorkerStaging]:
        looks = await self._all(lambda _, engine: engine.staging(self._left_s()))
        return [worker for found in looks for worker in found]

    def _sending(self, swap_id: SwapId) -> "asyncio.Task[int] | None":
        sender = self._parts.sender
        return None if sender is None else asyncio.create_task(sender.sent(swap_id))

    async def _swapped_in(self, target: Target, flip: Callable[[], None]) -> tuple[int, float] | None:
        """Steps 2 to 7, to their end: bytes exchanged and seconds paused; None when a worker lacked them."""
        began_s = self._clock.time()
        num_bytes = await _uninterrupted(self._paused(target, flip))
        return None if num_bytes is None else (num_bytes, self._clock.time() - began_s)

    async def _paused(self, target: Target, flip: Callable[[], None]) -> int | None:
        for streams in self._streams():
            streams.restart_gaps()
        self._parts.gate.close()
        num_bytes = await self._pause(target)
        if num_bytes is not None:
            await self._exchange(target, flip)
        self._parts.gate.open()
        return num_bytes

    async def _pause(self, target: Target) -> int | None:
        """Steps 2 and 3; a pause that comes to nothing is taken back, since the weights are as they were."""
        try:
            await self._all(lambda _, engine: engine.pause(self._left_s()))
            num_bytes = await self._ready(target)
        except ReefError as error:
            await self._take_back(error)
            self._parts.gate.open()
            await self._abandon()
            raise
        if num_bytes is None:
            await self._take_back(ConflictError("expected staged weights, got none", reason="not_staged"))
        return num_bytes

    async def _ready(self, target: Target) -> int | None:
        """Say how many bytes of the content every worker has; None when one lacks it."""
        workers = await self._workers()
        names = (target.swap_id, ahead_id(target.content_sha256))
        if not workers or any(one.phase != "ready" or one.swap_id not in names for one in workers):
            return None
        return max(worker.num_bytes for worker in workers)

    async def _take_back(self, error: ReefError) -> None:
        try:
            await self._all(lambda _, engine: engine.resume(RESUME_S_MAX))
        except ReefError as second:
            raise FinishError(str(error), reason=error.reason) from second

    async def _exchange(self, target: Target, flip: Callable[[], None]) -> None:
        """Steps 4 to 7."""
        try:
            await self._all(lambda _, engine: engine.finish(target.release_id, self._left_s()))
            versions = await self._all(lambda _, engine: engine.version(self._left_s()))
            if any(version != target.release_id for version in versions):
                raise UnavailableError(
                    f"expected release {target.release_id} on every engine, got {', '.join(versions)}",
                    reason="verification_failed",
                )
            flip()
            await self._all(lambda _, engine: engine.resume(self._left_s()))
        except ReefError as error:
            raise FinishError(str(error), reason=error.reason) from error

    async def _abandon(self) -> None:
        """Leave every engine as it was, and end a sender that may still wait for somebody."""
        if self._parts.sender is not None:
            await self._parts.sender.end()
        for engine in self._engines:
            try:
                await engine.abandon(ABANDON_S_MAX)
            except ReefError:
                continue  # the next try looks whether a session is open

    def _streams(self) -> list[OpenStreams]:
        return [self._parts.catalog.add(name).streams for name in self._parts.catalog.names()]

    def _left_s(self) -> float:
        return max(0.01, self._late_at_s - self._clock.time())

    async def _all(self, ask: Callable[[int, WeightRoutes], Awaitable[Any]]) -> list[Any]:
        """Ask all engines at once; the first failure is raised when all have answered."""
        results = await asyncio.gather(
            *(ask(number, engine) for number, engine in enumerate(self._engines)), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return list(results)


async def _has_ended(task: "asyncio.Task[int]", wait_s: float) -> bool:
    done, _ = await asyncio.wait({task}, timeout=wait_s)
    return bool(done)


async def _uninterrupted(work: Coroutine[Any, Any, int | None]) -> int | None:
    """Do something to its end even when the gateway is told to stop: an engine must not stay paused."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
