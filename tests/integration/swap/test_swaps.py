"""What a gateway does with its engines: swaps, failures, restarts; the engine plays a script."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.events import ArtifactKind, SwapFailed, SwapFailure, TrainingTarget, WeightSpan
from tests.integration.swap.conftest import ScriptedEngine
from tests.scripted_upstream import MODEL, Script, words
from tests.scripted_weights import Failing
from tests.swap_rig import SCENARIO, SwapRig, a_release_row, running_swaps, until

ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 8}


@asynccontextmanager
async def gateway(
    engine: ScriptedEngine, base: Path, *rows: dict[str, Any], **options: Any
) -> AsyncIterator[SwapRig]:
    found = {SCENARIO: [a_release_row(0, base), *rows]}
    options = {"rows": found, "base_folder": base, "keepers": {engine.upstream.url: engine}, **options}
    async with running_swaps([engine.upstream.url], base.parent, **options) as rig:
        yield rig


async def call(rig: SwapRig) -> httpx.Response:
    return await rig.client.post("/v1/chat/completions", json=ASK)


async def serves(rig: SwapRig, number: int) -> None:
    """Wait until a release answers, and the engine was resumed: killed before, it would be restarted."""
    await until(lambda: rig.serving_seq == number and rig.engines.engines[0].is_admitted and rig.gate.is_open)


async def test_an_engine_started_from_the_heads_folder_is_named_and_let_through(
    engine: ScriptedEngine, base: Path
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        assert engine.weights.version == a_release_row(0, base)["release_id"]
        assert engine.weights.calls == []
        answer = await call(rig)
        assert answer.headers["x-reef-release-id"] == engine.weights.version


async def test_a_start_serves_the_head_of_the_chain_and_nothing_before_it(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    engine.weights.stages_slowly = True
    head = a_release_row(2, releases[2])
    async with gateway(engine, base, a_release_row(1, releases[1]), head) as rig:
        await until(lambda: engine.weights.orders)
        refused = await call(rig)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        engine.weights.phase = "ready"
        await serves(rig, 2)
        assert (await call(rig)).headers["x-reef-release-id"] == head["release_id"]
        assert (await rig.swapped()).release_seq == 2


async def test_a_request_is_staged_paused_finished_verified_and_resumed_in_this_order(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        row = a_release_row(1, releases[1])
        await rig.publish(row)
        swapped = await rig.swapped()
        assert engine.weights.calls == ["start", "stage", "pause", "finish", "resume"]
        assert (swapped.release_id, swapped.release_seq, swapped.num_bytes) == (row["release_id"], 1, 7)
        assert (swapped.gateway_id, swapped.engine) == ("gateway-0", engine.upstream.url)
        assert 0 < swapped.pause_ms <= swapped.total_ms
        (order,) = engine.weights.orders
        folder = Path(order["folder"])
        assert (folder / "model.safetensors").read_bytes() == b"release-1"
        assert (folder / "config.json").is_file()
        assert engine.kept == str(folder)
        assert (await call(rig)).headers["x-reef-release-id"] == row["release_id"]
        assert engine.upstream.asked[-1]["cache_salt"] == row["release_id"]


async def test_an_open_stream_loses_nothing_and_knows_which_release_each_token_is_of(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    engine.upstream.script = Script(choices=(words(" ".join("abcdefghijklmnopqrst")),), chunk_delay_s=0.05)
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        async with rig.client.stream("POST", "/v1/chat/completions", json={**ASK, "stream": True}) as answer:
            lines = answer.aiter_lines()
            for _ in range(8):  # each event is a line and an empty one
                await anext(lines)
            await rig.publish(a_release_row(1, releases[1]))
            rest = [line async for line in lines]
        assert "data: [DONE]" in rest
        spans = rig.recorder.calls()[-1].weight_spans
        assert [span.release_seq for span in spans] == [0, 1]
        assert sum(span.num_tokens for span in spans) == 20
        assert all(span.num_tokens > 0 for span in spans)
        assert (await rig.swapped()).max_stream_gap_ms >= 50


async def test_a_buffered_call_that_straddles_a_swap_says_that_its_split_is_unknown(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    engine.upstream.script = Script(chunk_delay_s=1.0)
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        asking = asyncio.create_task(call(rig))
        await until(lambda: engine.upstream.num_open == 1)
        await rig.publish(a_release_row(1, releases[1]))
        assert (await asking).status_code == 200
        assert rig.recorder.calls()[-1].weight_spans == (
            WeightSpan(release_seq=0, num_tokens=-1),
            WeightSpan(release_seq=1, num_tokens=-1),
        )


async def test_the_newest_request_wins_and_the_one_before_is_overtaken(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        engine.weights.stages_slowly = True
        first = a_release_row(1, releases[1])
        await rig.publish(first)
        await until(lambda: len(engine.weights.orders) == 1)
        await rig.publish(a_release_row(2, releases[2]))
        engine.weights.phase = "ready"
        await until(lambda: len(engine.weights.orders) == 2)
        engine.weights.phase = "ready"
        await serves(rig, 2)
        (failure,) = await rig.told(SwapFailed)
        assert (failure.reason, failure.swap_id) == (SwapFailure.OVERTAKEN, failure.swap_id)
        assert (await rig.swapped()).release_seq == 2
        assert engine.weights.calls.count("pause") == 1


async def test_a_request_that_is_older_than_what_is_wanted_changes_nothing(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    rows = [a_release_row(1, releases[1]), a_release_row(2, releases[2])]
    async with gateway(engine, base, *rows) as rig:
        await serves(rig, 2)
        await rig.publish(rows[0])
        await rig.publish(a_release_row(3, releases[3]))
        await serves(rig, 3)
        assert [order["swap_id"] for order in engine.weights.orders] == [
            event.swap_id for event in await rig.told(type(await rig.swapped(2)), 2)
        ]


@pytest.mark.parametrize("step", ["start", "stage", "pause"])
async def test_a_failure_before_the_exchange_leaves_the_old_release_and_is_tried_again(
    engine: ScriptedEngine, base: Path, releases: list[Path], step: Failing
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        engine.weights.fails = {step}
        await rig.publish(a_release_row(1, releases[1]))
        failure = await rig.failed()
        assert failure.reason is SwapFailure.ENGINE_FAILED
        assert failure.serving_release_id == a_release_row(0, base)["release_id"]
        assert "finish" not in engine.weights.calls
        assert engine.weights.running.is_set()
        assert rig.gate.is_open
        assert (await call(rig)).status_code == 200
        assert rig.serving_seq == 0
        engine.weights.fails.clear()
        assert (await rig.swapped()).release_seq == 1  # after RETRY_S_FIRST
        assert engine.num_restarts == 0


async def test_a_staging_that_takes_too_long_is_given_up_at_the_deadline(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    async with gateway(engine, base, deadline_s=0.5) as rig:
        await serves(rig, 0)
        engine.weights.stages_slowly = True
        await rig.publish(a_release_row(1, releases[1]))
        assert (await rig.failed()).reason is SwapFailure.DEADLINE
        assert "pause" not in engine.weights.calls
        await until(lambda: not engine.weights.is_open)
        assert (await call(rig)).status_code == 200


@pytest.mark.parametrize(
    ("step", "hangs", "reason"),
    [
        ("finish", False, SwapFailure.ENGINE_FAILED),
        ("finish", True, SwapFailure.DEADLINE),
        ("version", False, SwapFailure.VERIFICATION_FAILED),
        ("resume", False, SwapFailure.ENGINE_FAILED),
    ],
)
async def test_a_failure_after_the_pause_restarts_the_engine_from_the_heads_folder(
    engine: ScriptedEngine,
    base: Path,
    releases: list[Path],
    step: Failing,
    hangs: bool,
    reason: SwapFailure,
) -> None:
    async with gateway(engine, base, deadline_s=2.0) as rig:
        await serves(rig, 0)
        (engine.weights.hangs if hangs else engine.weights.fails).add(step)
        row = a_release_row(1, releases[1])
        await rig.publish(row)
        assert (await rig.failed()).reason is reason
        await serves(rig, 1)
        assert engine.num_restarts == 1
        assert engine.weights.folder.endswith(row["content_sha256"])
        assert engine.weights.version == row["release_id"]
        assert rig.gate.is_open
        assert (await call(rig)).headers["x-reef-release-id"] == row["release_id"]
        assert (await rig.swapped()).release_seq == 1


async def test_files_that_cannot_be_had_leave_the_engine_alone(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        rig.artifacts.missing.add("release-1")
        await rig.publish(a_release_row(1, releases[1]))
        assert (await rig.failed()).reason is SwapFailure.ARTIFACT_UNAVAILABLE
        assert engine.weights.calls == []
        assert rig.catalog.add(SCENARIO).swap_problem is not None


async def test_an_engine_that_comes_back_with_older_weights_takes_no_call_before_it_has_the_head(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    async with gateway(engine, base) as rig:
        await serves(rig, 0)
        await rig.publish(a_release_row(1, releases[1]))
        await serves(rig, 1)
        engine.weights.stages_slowly = True
        await engine.run(engine.upstream.stop())
        await until(lambda: rig.engines.engines[0].is_down)  # nobody called: it is watched
        engine.weights.restart(str(base))
        await engine.run(engine.upstream.start())
        await until(lambda: len(engine.weights.orders) == 2)
        assert (await call(rig)).status_code == 503
        engine.weights.phase = "ready"
        await serves(rig, 1)
        assert (await call(rig)).status_code == 200


async def test_what_a_killed_gateway_left_paused_goes_on(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    row = a_release_row(1, releases[1])
    engine.weights.version, engine.weights.is_open = row["release_id"], True
    engine.weights.running.clear()
    async with gateway(engine, base, row) as rig:
        await serves(rig, 1)
        assert engine.weights.running.is_set()
        assert not engine.weights.is_open
        assert (await rig.swapped()).release_seq == 1  # the fact that the killed one did not write


async def test_an_engine_without_weight_routes_answers_as_release_0_and_says_so_once(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    engine.upstream.weights = None
    await engine.run(engine.upstream.stop())
    await engine.run(engine.upstream.start())
    async with gateway(engine, base, a_release_row(1, releases[1]), keepers={}) as rig:
        await serves(rig, 0)
        assert (await rig.failed()).reason is SwapFailure.ENGINE_NOT_SWAPPABLE
        assert (await call(rig)).status_code == 200
        await rig.publish(a_release_row(2, releases[2]))
        await rig.failed(2)
        assert rig.serving_seq == 0


async def test_an_adapter_is_swapped_without_a_pause_and_unloaded_after_its_last_request(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    rows = {SCENARIO: [a_release_row(0, base)]}
    async with gateway(engine, base, rows=rows, targets={SCENARIO: TrainingTarget.LORA}) as rig:
        await serves(rig, 0)
        assert (await call(rig)).status_code == 200
        assert engine.upstream.asked[-1]["model"] == MODEL
        await rig.publish(a_release_row(1, releases[1], kind=ArtifactKind.LORA))
        await rig.swapped()
        engine.upstream.script = Script(stalls_after=0, choices=(words("a b"),))
        asking = asyncio.create_task(call(rig))
        await until(lambda: engine.upstream.num_open == 1)
        assert engine.upstream.asked[-1]["model"] == "default--r000001"
        await rig.publish(a_release_row(2, releases[2], kind=ArtifactKind.LORA))
        swapped = await rig.swapped(2)
        assert (swapped.release_seq, swapped.pause_ms) == (2, 0.0)
        assert engine.weights.adapters == {"default--r000001", "default--r000002"}
        asking.cancel()
        await until(lambda: engine.weights.adapters == {"default--r000002"})
        assert engine.weights.calls == ["load", "load"]
        assert rig.serving_seq == 2


async def test_an_engine_that_comes_back_gets_its_adapters_again(
    engine: ScriptedEngine, base: Path, releases: list[Path]
) -> None:
    rows = {SCENARIO: [a_release_row(0, base), a_release_row(1, releases[1], kind=ArtifactKind.LORA)]}
    async with gateway(engine, base, rows=rows, targets={SCENARIO: TrainingTarget.LORA}) as rig:
        await serves(rig, 1)
        await engine.run(engine.upstream.stop())
        await until(lambda: rig.engines.engines[0].is_down)
        engine.weights.restart(str(base))
        engine.weights.fails = {"load"}
        await engine.run(engine.upstream.start())
        await rig.failed()
        assert not rig.engines.engines[0].is_admitted, "it would answer that it knows no such model"
        engine.weights.fails.clear()
        await until(lambda: rig.engines.engines[0].is_admitted)
        assert engine.weights.adapters == {"default--r000001"}
        assert (await call(rig)).status_code == 200
        assert engine.upstream.asked[-1]["model"] == "default--r000001"
