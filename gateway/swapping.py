"""Shell: keeps engines on the releases that are requested: at a start, after a request, after a restart.

One task decides for all engines, so that two swaps never meet. Not the swap itself: gateway/swap.py.
docs/decisions/hot-swap.md says what follows which failure.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from gateway.adapters import Adapters
from gateway.engines import Engine
from gateway.holding import LOOK_S_MAX, BrokenEngineError, held, is_swappable, tidied
from gateway.staging_ahead import Ahead
from gateway.swap import FinishError, Swap, Swapped
from gateway.swapping_parts import SwappingParts
from gateway.target import Content, Target, Wish, newest, of_release, retry_delay_s, weights_of
from gateway.weight_routes import WeightRoutes
from schemas.errors import ConflictError, ReefError, RejectedError
from schemas.events import ArtifactKind, Event, Operation, ReleasePublished, SwapRequested, TrainingTarget
from schemas.ids import ReleaseId, ScenarioName
from schemas.kinds import is_weights

LOOK_AGAIN_S = 5.0
"""Rest after an engine could not be asked what it holds."""
REST_S_MIN = 1.0
"""Between two looks, when a retry is due and no engine is there for it."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Swapping:
    """Runs while it is open."""

    def __init__(self, parts: SwappingParts, *, wake: asyncio.Event) -> None:
        """Take its parts; `wake` is set by whoever sees that an engine came up."""
        self._parts, self._wake = parts, wake
        self._wishes: dict[ScenarioName, Wish] = {}
        self._adapters = Adapters(parts.catalog, parts.stage, deadline_s=parts.swap.deadline_s)
        self._ended_at_s: dict[ScenarioName, float] = {}
        self._ahead = Ahead()
        self._swappable: set[str] = set()

    async def hear(self, event: Event) -> None:
        """Take a request from the log; the newest wins. Agents pull what is no weights; it is not swapped."""
        match event:
            case SwapRequested() if is_weights(event.kind):
                await self._wish(event.scenario, event.release_id)
            case ReleasePublished(operation=Operation.CREATION):
                await self._wish(event.scenario, event.release_id)
            case _:
                if self._ahead.hear(event):
                    self._wake.set()

    async def _recall(self, name: ScenarioName) -> None:
        rows = weights_of(await self._parts.chains.releases(name))
        if rows:
            swapped = (await self._parts.chains.latest(name)).get("swapped", {})
            await self._wish(name, ReleaseId(rows[0]["release_id"]))
            self._wishes[name].told = swapped.get("release_id")

    async def _wish(self, name: ScenarioName, release_id: ReleaseId) -> None:
        """Want a release; one that was wanted and never came is overtaken."""
        if name not in self._parts.catalog:
            return
        rows = weights_of(await self._parts.chains.releases(name))
        offered = next((of_release(name, row) for row in rows if row["release_id"] == release_id), None)
        if offered is None:
            _log.warning("swap_of_unknown_release", scenario=name, release_id=release_id)
            return
        state, before = self._parts.catalog.add(name), self._wishes.get(name)
        if rows[-1]["release_seq"] == 0:
            state.first_release_id = ReleaseId(rows[-1]["release_id"])
        if before is not None and newest(before.target, offered) is before.target:
            return
        state.wanted_release_id = offered.release_id
        self._wishes[name] = Wish(target=offered, told=before.told if before else None)
        if before is not None and not self._serves(before.target):
            newer = f"expected release {before.target.release_seq} to be served, got a newer request"
            await self._parts.report.failed(before.target, ConflictError(newer, reason="overtaken"))
        self._wake.set()

    async def run(self) -> None:
        """Wish for the heads of the chains, and see to them for ever."""
        for name in self._parts.catalog.names():
            await self._recall(name)
        try:
            while True:
                await self._rest()
                await self._see()
        finally:
            await self._adapters.close()

    async def _rest(self) -> None:
        """Wait until something changed, or a retry is due."""
        waiting = [wish.not_before_s - _now_s() for wish in self._wishes.values() if wish.num_failures]
        try:
            async with asyncio.timeout(max(REST_S_MIN, min(waiting)) if waiting else None):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _see(self) -> None:
        try:
            await self._reconcile()
        except ReefError as error:
            _log.warning("engines_not_looked_at", reason=error.reason, detail=str(error))
            self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._wake.set)

    async def _reconcile(self) -> None:
        """Bring every engine that runs, and every scenario, to what is wanted."""
        up = [engine for engine in self._parts.engines.engines if not engine.is_down]
        if not up:
            return
        routes = [WeightRoutes(engine.url, self._parts.engines.session) for engine in up]
        await self._learn_name(routes[0])
        owner = self._owner()
        if owner is not None and not await self._bring_base(owner, up, routes):
            return
        for name, wish in list(self._wishes.items()):
            if owner is None or name != owner.target.scenario:
                await self._bring_above(wish, routes)
        lacking = await self._lacking_adapters(up, routes)
        if owner is None:
            _admit([engine for engine in up if engine not in lacking])
        for engine in lacking:
            engine.is_admitted = False
        if lacking:
            self._look_later()
        if owner is not None and len(up) == len(self._parts.engines.engines):
            await self._stage_ahead(owner, routes)

    async def _stage_ahead(self, serving: Wish, routes: Sequence[WeightRoutes]) -> None:
        """Stage the candidate that will probably be requested next, until something else is wanted."""
        if not self._serves(serving.target) or serving.is_refused:
            return

        def is_likely(content: Content) -> bool:
            wish = self._wishes[serving.target.scenario]
            return wish is serving or wish.target.content_sha256 == content.content_sha256

        swap = Swap(self._parts.swap, routes)
        await self._ahead.stage(serving.target, self._parts.folders, swap, is_likely)

    def _owner(self) -> Wish | None:
        """Give the scenario whose releases are the engines' own weights; there is one at most."""
        return next(
            (
                self._wishes[n]
                for n in sorted(self._wishes)
                if self._parts.target_of(n) is TrainingTarget.FULL
            ),
            None,
        )

    async def _learn_name(self, engine: WeightRoutes) -> None:
        models = await engine.models(LOOK_S_MAX)
        if self._parts.stage.base_model not in models:
            self._parts.stage.rename(sorted(models)[0])

    async def _bring_base(self, wish: Wish, up: Sequence[Engine], routes: Sequence[WeightRoutes]) -> bool:
        """Bring the engines' own weights to what is wanted; whether they answer something now."""
        if not await self._are_swappable(up, routes):
            await self._serve_only(wish, up)
            return True
        try:
            await asyncio.gather(*(tidied(r) for e, r in zip(up, routes, strict=True) if not e.is_admitted))
        except BrokenEngineError:
            folder = await asyncio.to_thread(self._parts.folders.materialize, wish.target)
            await self._restart(wish.target, str(folder), up)
            raise
        chain = await self._chain(wish.target)
        holds = [await self._held(e, route, chain) for e, route in zip(up, routes, strict=True)]
        if all(one is not None and one.release_id == wish.target.release_id for one in holds):
            await self._settle(wish, up)
            return True
        if wish.not_before_s <= _now_s() and await self._try(wish, up, routes, holds):
            return True
        return self._fall_back(wish, up, holds)

    async def _are_swappable(self, up: Sequence[Engine], routes: Sequence[WeightRoutes]) -> bool:
        """Ask each engine once while it is admitted: the question waits for a step, before every swap."""
        for engine, route in zip(up, routes, strict=True):
            if engine.is_admitted and engine.url in self._swappable:
                continue
            self._swappable.discard(engine.url)
            if not await is_swappable(route):
                return False
            self._swappable.add(engine.url)
        return True

    async def _held(self, engine: Engine, route: WeightRoutes, chain: Sequence[Target]) -> Target | None:
        """Say which release an engine holds; once it is admitted, what serves: answers wait for a step."""
        serving = self._parts.catalog.add(chain[0].scenario).serving
        if engine.is_admitted and serving is not None:
            return next((target for target in chain if target.release_id == serving.release_id), None)
        return await held(route, chain, self._parts.folders)

    async def _chain(self, wanted: Target) -> list[Target]:
        """Give the releases that an engine may hold, the wanted one first: contents may be equal."""
        rows = weights_of(await self._parts.chains.releases(wanted.scenario))
        return [wanted, *(of_release(wanted.scenario, row) for row in rows)]

    async def _serve_only(self, wish: Wish, up: Sequence[Engine]) -> None:
        """Answer as release 0 with an engine that cannot swap (RULINGS 4)."""
        first = (await self._chain(wish.target))[-1]
        if not self._serves(first):
            self._parts.stage.put_base(first)
        if wish.target.release_seq > 0 and not wish.is_refused:
            wish.is_refused = True
            await self._parts.report.failed(
                wish.target,
                RejectedError(
                    "expected an engine with weight routes and our plug-in, got one without: "
                    "start it as docs/stack.md says",
                    reason="engine_not_swappable",
                ),
            )
        _admit(up)

    async def _settle(self, wish: Wish, up: Sequence[Engine]) -> None:
        """Let calls through to engines that hold what is wanted."""
        target = wish.target
        if not self._serves(target):
            self._parts.stage.put_base(target)
        self._succeeded(wish)
        _admit(up)
        if target.release_seq > 0 and wish.told != target.release_id:
            pause_s = _now_s() - self._ended_at_s.pop(target.scenario, _now_s())
            moved = Swapped(num_bytes=0, stage_s=0.0, pause_s=pause_s, gap_s=0.0, total_s=pause_s)
            await self._tell(wish, [engine.url for engine in up], moved)

    async def _try(
        self,
        wish: Wish,
        up: Sequence[Engine],
        routes: Sequence[WeightRoutes],
        holds: Sequence[Target | None],
    ) -> bool:
        """Swap once; whether that succeeded."""
        target, taken_s = wish.target, _now_s()

        def flip() -> None:
            self._parts.stage.put_base(target)
            _admit(up)  # now: one that dies from here on is somebody else when it comes back

        try:
            folder = await asyncio.to_thread(self._parts.folders.materialize, target)
            swapped = await Swap(self._parts.swap, routes).carry_out(
                target,
                folder,
                taken_s=taken_s,
                is_wanted=lambda: self._wishes[target.scenario] is wish,
                flip=flip,
                staged_ahead_s=self._ahead.take_staged_s(target),
            )
        except ReefError as error:
            await self._failed(wish, error, holds[0])
            if isinstance(error, FinishError):
                await self._restart(target, str(folder), up)
            return False
        self._succeeded(wish)
        for engine in up:
            if engine.url in self._parts.keepers:
                await self._parts.keepers[engine.url].keep(str(folder))
        await self._tell(wish, [engine.url for engine in up], swapped)
        await asyncio.to_thread(self._parts.folders.forget_oldest, (folder,))
        return True

    async def _failed(self, wish: Wish, error: ReefError, holds: Target | None) -> None:
        if self._wishes[wish.target.scenario] is not wish:
            return  # overtaken, which was told when that was seen
        wish.num_failures += 1
        wish.not_before_s = _now_s() + retry_delay_s(wish.num_failures)
        await self._parts.report.failed(wish.target, error, None if holds is None else holds.release_id)

    async def _restart(self, target: Target, folder: str, up: Sequence[Engine]) -> None:
        """End engines whose weights nobody knows; whoever starts them does so from the head's folder."""
        self._ended_at_s[target.scenario] = _now_s()
        for engine in up:
            self._parts.engines.expect_restart(engine)
        self._parts.swap.gate.open()
        for engine in up:
            keeper = self._parts.keepers.get(engine.url)
            if keeper is None:
                _log.error("engine_needs_restart", engine=engine.url)
                continue
            self._parts.report.restarted(engine.url)
            await keeper.keep(folder)
            await keeper.restart()

    def _fall_back(self, wish: Wish, up: Sequence[Engine], holds: Sequence[Target | None]) -> bool:
        """Let engines answer that hold what serves; at a start, whatever release they all hold."""
        state = self._parts.catalog.add(wish.target.scenario)
        if state.serving is None and holds[0] is not None and wish.num_failures:
            self._parts.stage.put_base(holds[0])
        serving = state.serving
        for engine, one in zip(up, holds, strict=True):
            if not engine.is_down and serving is not None and one is not None:
                engine.is_admitted = one.release_id == serving.release_id
        return any(engine.is_admitted for engine in up)

    async def _bring_above(self, wish: Wish, routes: Sequence[WeightRoutes]) -> None:
        """Serve an adapter, or a release that changes nothing in the engines."""
        target = wish.target
        if target.kind is ArtifactKind.LORA:
            await self._bring_adapter(wish, routes)
        elif target.kind is ArtifactKind.CHECKPOINT and target.release_seq > 0 and not _is_file(target):
            await self._refuse(wish)
        elif not self._serves(target):
            self._adapters.leave(target, routes)
            self._succeeded(wish)

    async def _bring_adapter(self, wish: Wish, routes: Sequence[WeightRoutes]) -> None:
        target, began_s = wish.target, _now_s()
        if wish.not_before_s > _now_s():
            return
        try:
            folder = await asyncio.to_thread(self._parts.folders.materialize, target)
            was_served = self._serves(target)
            await self._adapters.bring(target, folder, routes)
        except ReefError as error:
            await self._failed(wish, error, None)
            return
        self._succeeded(wish)
        if not was_served and wish.told != target.release_id:
            took_s = _now_s() - began_s
            size = await asyncio.to_thread(_size, folder)
            moved = Swapped(num_bytes=size, stage_s=took_s, pause_s=0.0, gap_s=0.0, total_s=took_s)
            await self._tell(wish, [route.url for route in routes], moved)

    async def _lacking_adapters(self, up: Sequence[Engine], routes: Sequence[WeightRoutes]) -> list[Engine]:
        """Find engines without an adapter that serves: they came back, and could not load it yet."""
        scenarios = [one for one in self._wishes if self._parts.target_of(one) is TrainingTarget.LORA]
        serving = [self._parts.catalog.add(one).serving for one in scenarios]
        names = {one.engine_model for one in serving if one is not None}
        if not names:
            return []
        there = [await route.models(LOOK_S_MAX) for route in routes]
        return [engine for engine, models in zip(up, there, strict=True) if not names <= set(models)]

    async def _refuse(self, wish: Wish) -> None:
        if wish.is_refused:
            return
        wish.is_refused = True
        message = (
            "expected a scenario that trains the engine's weights, got one beside it that only records: "
        )
        hint = "start a deployment whose configuration names it as the one with target full"
        await self._parts.report.failed(
            wish.target, RejectedError(message + hint, reason="engine_not_swappable")
        )

    async def _tell(self, wish: Wish, engines: Sequence[str], swapped: Swapped) -> None:
        wish.told = wish.target.release_id
        await self._parts.report.swapped(wish.target, engines, swapped)

    def _serves(self, target: Target) -> bool:
        serving = self._parts.catalog.add(target.scenario).serving
        return serving is not None and serving.release_id == target.release_id

    def _succeeded(self, wish: Wish) -> None:
        wish.num_failures, wish.not_before_s = 0, 0.0
        self._parts.catalog.add(wish.target.scenario).swap_problem = None


def _admit(engines: Sequence[Engine]) -> None:
    for engine in engines:
        engine.is_admitted = not engine.is_down


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_file(target: Target) -> bool:
    return target.artifact_uri.startswith("file:")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
