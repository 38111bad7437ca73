"""Candidates and commands in, a linear chain and its events out, on the real log and the real lakeFS."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from release.head import tag_of
from schemas.artifact_fetch import ARTIFACTS_FOLDER, FetchedArtifacts
from schemas.events import (
    ArtifactKind,
    CandidateEvaluated,
    Event,
    EventRejected,
    Operation,
    ReleasePublished,
    SwapRequested,
    Verdict,
    VerdictReason,
)
from schemas.ids import CandidateId, CommandId, ReleaseId
from tests.builders import a_promote_candidate, a_roll_back_release
from tests.release_rig import (
    ADAPTER,
    WEIGHTS,
    ReleaseRig,
    an_adapter,
    has_seq,
    refusals,
    weights,
)

pytestmark = [pytest.mark.kafka, pytest.mark.lakefs]


async def test_a_scenario_begins_with_the_base_model_which_is_not_copied(rig: ReleaseRig) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
    assert (first.operation, first.parent_release_id, first.candidate_id) == (Operation.CREATION, None, None)
    assert first.artifact_uri == (rig.folder / "model").as_uri() + "/"
    fetched = FetchedArtifacts(rig.folder / "fetched", rig.settings.lakefs)
    assert fetched.fetch(first.artifact_uri, first.content_sha256) == rig.folder / "model"
    assert await rig.chain.tags() == {"rel-000000": first.release_id}


async def test_a_good_candidate_becomes_the_head_and_its_files_come_back_to_the_byte(rig: ReleaseRig) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
        candidate = rig.candidate(1, first.release_id)
        data = (rig.folder / "exports" / "candidate-1" / WEIGHTS).read_bytes()
        await rig.publish(candidate)
        release = await rig.until_seq(1)
        events = await rig.until(lambda events: has_seq(events, 1))
    assert [type(event) for event in events] == [
        ReleasePublished,
        CandidateEvaluated,
        ReleasePublished,
        SwapRequested,
    ]
    assert (release.parent_release_id, release.operation) == (first.release_id, Operation.TRAINING)
    assert release.batch_ids == (candidate.batch_id,)
    assert release.artifact_uri == f"lakefs://reef-{rig.scenario}/{release.release_id}/"
    fetched = FetchedArtifacts(rig.folder / "fetched", rig.settings.lakefs)
    folder = fetched.fetch(release.artifact_uri, release.content_sha256)
    assert (folder / WEIGHTS).read_bytes() == data
    away = replace(rig.settings.lakefs, endpoint="http://127.0.0.1:1")
    at_hand = FetchedArtifacts(rig.settings.state_dir / ARTIFACTS_FOLDER, away)
    at_hand.fetch(release.artifact_uri, release.content_sha256)  # services beside this one need not fetch it
    assert await rig.chain.tags() == {tag_of(n): r.release_id for n, r in enumerate((first, release))}


async def test_the_export_is_gone_once_the_verdict_stands(rig: ReleaseRig) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
        one = rig.candidate(1, first.release_id)
        stale = rig.candidate(2, first.release_id)
        await rig.publish(one, stale)
        await rig.verdict(stale)
        third = rig.candidate(3, (await rig.until_seq(1)).release_id)
        await rig.publish(third)
        await rig.until_seq(2)
    left = sorted(path.name for path in (rig.folder / "exports").iterdir())
    assert left in ([], ["candidate-3"])  # the last one goes right after its events


def broken_missing(folder: Path) -> None:
    (folder / "second.safetensors").unlink()


def broken_cut(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: int(len(data) * 0.6)])


def with_nan() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    tensors = weights(1)
    tensors["model.a.weight"][2, 3] = np.nan
    return tensors


async def test_broken_candidates_are_refused_and_a_good_one_goes_through_afterwards(rig: ReleaseRig) -> None:
    halves = [{name: tensor} for name, tensor in weights(1).items()]
    async with rig.running():
        base = (await rig.until_seq(0)).release_id
        cases = {
            VerdictReason.MISSING_FILE: rig.candidate(
                1, base, files={WEIGHTS: halves[0], "second.safetensors": halves[1]}
            ),
            VerdictReason.DIGEST_MISMATCH: rig.candidate(2, base),
            VerdictReason.NON_FINITE: rig.candidate(3, base, files={WEIGHTS: with_nan()}),
            VerdictReason.EMPTY: rig.candidate(4, base, files={"notes.txt": b"nothing here"}),
        }
        broken_missing(rig.folder / "exports" / "candidate-1")
        broken_cut(rig.folder / "exports" / "candidate-2")
        for reason, candidate in cases.items():
            await rig.publish(candidate)
            verdict = await rig.verdict(candidate)
            assert (verdict.verdict, verdict.reasons) == (Verdict.REJECTED, (reason,))
        good = rig.candidate(5, base)
        (rig.folder / "exports" / "candidate-5" / "pytorch_model.bin").write_bytes(b"another format")
        await rig.publish(good)
        release = await rig.until_seq(1)
    assert release.candidate_id == good.candidate_id
    folder = FetchedArtifacts(rig.folder / "fetched", rig.settings.lakefs).fetch(
        release.artifact_uri, release.content_sha256
    )
    assert {path.name for path in folder.iterdir()} == {WEIGHTS, "manifest.json"}


async def test_after_a_rejection_the_next_candidate_starts_from_the_served_release(rig: ReleaseRig) -> None:
    bounded = rig.evaluating(module="metric_bounds", config={"grad_norm": {"max": 1.0}})
    async with bounded.running():
        head = (await rig.until_seq(0)).release_id
        seventh = rig.candidate(7, head, metrics={"grad_norm": 7.0})
        await rig.publish(seventh)
        refused = await rig.verdict(seventh)
        eighth = rig.candidate(8, head, metrics={"grad_norm": 0.5})
        await rig.publish(eighth)
        release = await rig.until_seq(1)
    assert (refused.verdict, refused.reasons) == (Verdict.REJECTED, (VerdictReason.METRIC_OUT_OF_BOUNDS,))
    assert refused.metrics == {"grad_norm": 7.0}
    assert (release.candidate_id, release.parent_release_id) == (eighth.candidate_id, head)
    kept = await rig.chain.prepared(f"training-{seventh.candidate_id}-")
    assert [one.head.candidate_id for one in kept] == [seventh.candidate_id]


async def test_rollback_publishes_older_content_again_and_training_on_the_old_head_is_superseded(
    rig: ReleaseRig,
) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
        await rig.publish(rig.candidate(1, first.release_id))
        second = await rig.until_seq(1)
        command = a_roll_back_release(
            scenario=rig.scenario,
            command_id=CommandId("c/1: any text"),
            target_release_id=first.release_id,
            expected_head_release_id=second.release_id,
            requested_at_us=second.published_at_us,
        )
        await rig.publish(command)
        back = await rig.until_seq(2)
        late = rig.candidate(2, second.release_id)
        await rig.publish(command, late)
        verdict = await rig.verdict(late)
        fresh = rig.candidate(3, back.release_id)
        await rig.publish(fresh)
        last = await rig.until_seq(3)
    assert (back.operation, back.content_sha256, back.artifact_uri) == (
        Operation.ROLLBACK,
        first.content_sha256,
        first.artifact_uri,
    )
    assert back.rollback_target_release_id == first.release_id
    assert back.command_id == command.command_id
    assert verdict.reasons == (VerdictReason.BASE_SUPERSEDED,)
    assert last.parent_release_id == back.release_id
    assert [release.seq for release in await rig.releases()] == [0, 1, 2, 3]


async def test_a_rollback_names_the_older_commits_files(rig: ReleaseRig) -> None:
    async with rig.running():
        head = await rig.until_seq(0)
        for number in (1, 2):
            await rig.publish(rig.candidate(number, head.release_id))
            head = await rig.until_seq(number)
        releases = await rig.releases()
        await rig.publish(
            a_roll_back_release(
                scenario=rig.scenario,
                target_release_id=releases[1].release_id,
                expected_head_release_id=None,
                requested_at_us=head.published_at_us,
            )
        )
        back = await rig.until_seq(3)
    assert back.artifact_uri == f"lakefs://reef-{rig.scenario}/{releases[1].release_id}/"
    assert back.candidate_id == releases[1].head.candidate_id
    assert f"content-{releases[1].release_id[:16]}" in await rig.chain.branches()  # no garbage collection
    fetched = FetchedArtifacts(rig.folder / "fetched", rig.settings.lakefs)
    assert fetched.fetch(back.artifact_uri, back.content_sha256).is_dir()


async def test_commands_that_cannot_be_obeyed_are_refused_once(rig: ReleaseRig) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
        common = {"scenario": rig.scenario, "requested_at_us": first.published_at_us}
        await rig.publish(
            a_roll_back_release(
                **common,
                command_id=CommandId("a"),
                target_release_id=ReleaseId("e0" * 32),
                expected_head_release_id=None,
            ),
            a_roll_back_release(
                **common,
                command_id=CommandId("b"),
                target_release_id=first.release_id,
                expected_head_release_id=ReleaseId("e1" * 32),
            ),
            a_promote_candidate(**common, command_id=CommandId("c")),
            a_roll_back_release(scenario=rig.scenario, command_id=CommandId("d"), requested_at_us=0),
        )
        events = await rig.until(lambda events: len(refusals(events)) == 4)
    assert sorted(refusals(events)) == [
        "command_expired",
        "head_moved",
        "no_such_candidate",
        "no_such_release",
    ]
    async with rig.running():
        await rig.publish(a_promote_candidate(**common, command_id=CommandId("e")))
        events = await rig.until(lambda events: len(set(rejected_ids(events))) == 5, copies=True)
    assert len(rejected_ids(events)) == 5  # those before were not refused again
    assert [release.seq for release in await rig.releases()] == [0]


def rejected_ids(events: list[Event]) -> list[str]:
    return [event.event_id for event in events if isinstance(event, EventRejected)]


async def test_a_held_candidate_waits_and_is_promoted_onto_whatever_is_the_head_then(rig: ReleaseRig) -> None:
    async with rig.evaluating(publish="review").running():
        first = await rig.until_seq(0)
        held = rig.candidate(1, first.release_id)
        await rig.publish(held)
        assert (await rig.verdict(held)).verdict is Verdict.HELD
    async with rig.running():
        await rig.publish(rig.candidate(2, first.release_id))
        head = await rig.until_seq(1)
        promote = a_promote_candidate(
            scenario=rig.scenario,
            candidate_id=held.candidate_id,
            requested_at_us=head.published_at_us,
        )
        await rig.publish(promote, promote)
        release = await rig.until_seq(2)
        await rig.publish(rig.candidate(3, release.release_id))
        await rig.until_seq(3)
    assert (release.operation, release.candidate_id) == (Operation.PROMOTE, held.candidate_id)
    assert release.parent_release_id == head.release_id
    fetched = FetchedArtifacts(rig.folder / "fetched", rig.settings.lakefs)
    assert (fetched.fetch(release.artifact_uri, release.content_sha256) / WEIGHTS).is_file()


async def test_a_held_candidate_is_promoted_by_the_commit_where_it_waits(rig: ReleaseRig) -> None:
    async with rig.evaluating(publish="review").running():
        first = await rig.until_seq(0)
        held = rig.candidate(1, first.release_id)
        await rig.publish(held)
        assert (await rig.verdict(held)).verdict is Verdict.HELD
        (waiting,) = await rig.chain.prepared(f"training-{held.candidate_id}-")
        await rig.publish(
            a_promote_candidate(
                scenario=rig.scenario,
                candidate_id=CandidateId(waiting.commit_id),
                requested_at_us=first.published_at_us,
            )
        )
        release = await rig.until_seq(1)
    assert (release.operation, release.candidate_id) == (Operation.PROMOTE, held.candidate_id)
    assert release.artifact_uri.endswith(f"/{waiting.commit_id}/")


async def test_a_promotion_asked_for_before_the_verdict_waits_for_it(rig: ReleaseRig) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
    held = rig.candidate(1, first.release_id)
    promote = a_promote_candidate(
        scenario=rig.scenario, candidate_id=held.candidate_id, requested_at_us=first.published_at_us
    )
    await rig.publish(held, promote)
    async with rig.evaluating(publish="review").running():
        release = await rig.until_seq(1)
    assert release.operation is Operation.PROMOTE


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        (ArtifactKind.LORA, {ADAPTER: an_adapter(), "adapter_config.json": b"{}"}),
        (ArtifactKind.HARNESS, {"prompts/system.txt": b"Be brief.", "agent.py": b"pass"}),
        (ArtifactKind.ROUTING, {"policy.json": b"{}"}),
    ],
)
async def test_any_kind_of_artifact_goes_through_the_same_chain(
    rig: ReleaseRig, kind: ArtifactKind, files: dict[str, bytes]
) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
        await rig.publish(rig.candidate(1, first.release_id, kind=kind, files=files))
        release = await rig.until_seq(1)
    assert release.kind is kind
    fetched = FetchedArtifacts(rig.folder / "fetched", rig.settings.lakefs)
    folder = fetched.fetch(release.artifact_uri, release.content_sha256)
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == {*files, "manifest.json"}


async def test_a_full_disk_refuses_clearly_publishes_nothing_and_lets_operators_act(rig: ReleaseRig) -> None:
    async with rig.running():
        first = await rig.until_seq(0)
        await rig.publish(rig.candidate(1, first.release_id))
        second = await rig.until_seq(1)
    waiting = rig.candidate(2, second.release_id)
    async with rig.evaluating(free_bytes_min=2**60).running() as service:
        await rig.publish(
            waiting,
            a_roll_back_release(
                scenario=rig.scenario,
                target_release_id=first.release_id,
                expected_head_release_id=None,
                requested_at_us=second.published_at_us,
            ),
        )
        await rig.until_seq(2)
        failures = service.metrics.registry.get_sample_value(
            "reef_release_failures_total", {"scenario": rig.scenario, "reason": "disk_full"}
        )
        assert failures is not None
        assert failures >= 1
    assert not await rig.chain.prepared(f"training-{waiting.candidate_id}-")
    assert (rig.folder / "exports" / "candidate-2").is_dir()
    async with rig.running():
        verdict = await rig.verdict(waiting)
    assert verdict.reasons == (VerdictReason.BASE_SUPERSEDED,)


async def test_two_workers_publish_each_candidate_once(rig: ReleaseRig) -> None:
    async with rig.running(), rig.running():
        head = await rig.until_seq(0)
        for number in range(1, 6):
            await rig.publish(rig.candidate(number, head.release_id))
            head = await rig.until_seq(number)
    releases = await rig.releases()
    assert [release.seq for release in releases] == list(range(6))
    assert len({release.head.candidate_id for release in releases}) == 6
    events = await rig.until(lambda events: has_seq(events, 5))
    assert len([event for event in events if isinstance(event, CandidateEvaluated)]) == 5
    assert all(event.verdict is Verdict.ACCEPTED for event in events if isinstance(event, CandidateEvaluated))
