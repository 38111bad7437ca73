"""The relays, case by case (STREAMS 22)."""

import pytest

from schemas.errors import RejectedError
from schemas.events import (
    ArtifactKind,
    BatchSettled,
    BatchState,
    Event,
    Operation,
    ReleaseAdvanced,
    ScenarioConfigured,
    Verdict,
)
from schemas.topics import EXPERIENCE, INTERACTIONS
from streams.outputs import Emitted
from streams.relay import relay
from tests.builders import (
    a_candidate_evaluated,
    a_candidate_trained,
    a_promote_candidate,
    a_release_published,
    a_roll_back_release,
    a_scenario_configured,
    a_swap_requested,
    a_training_failed,
    an_experience_assembled,
)


def told(event: Event) -> list[Emitted]:
    return [each for each in relay(event, num_partitions=3) if isinstance(each, Emitted)]


def settled(event: Event) -> list[BatchSettled]:
    return [each.event for each in told(event) if isinstance(each.event, BatchSettled)]


def test_a_release_of_training_moves_the_head_first_and_then_ends_its_batch() -> None:
    release = a_release_published(operation=Operation.TRAINING)
    advanced, ended = [each.event for each in told(release)]
    assert isinstance(advanced, ReleaseAdvanced)
    assert isinstance(ended, BatchSettled)
    assert (ended.state, ended.release_id) == (BatchState.TRAINED, release.release_id)
    for name in ("release_id", "release_seq", "candidate_id", "content_sha256", "artifact_uri"):
        assert getattr(advanced, name) == getattr(release, name)


@pytest.mark.parametrize("operation", [Operation.CREATION, Operation.ROLLBACK, Operation.PROMOTE])
def test_other_releases_move_the_head_and_end_no_batch(operation: Operation) -> None:
    release = a_release_published(operation=operation)
    assert [type(each.event) for each in told(release)] == [ReleaseAdvanced]


@pytest.mark.parametrize("kind", [ArtifactKind.HARNESS, ArtifactKind.ROUTING])
def test_what_is_no_weights_moves_no_head_but_ends_its_batch(kind: ArtifactKind) -> None:
    release = a_release_published(operation=Operation.TRAINING, kind=kind)
    assert [type(each.event) for each in told(release)] == [BatchSettled] * len(release.batch_ids)
    assert release.batch_ids
    assert told(a_release_published(operation=Operation.ROLLBACK, kind=kind)) == []


@pytest.mark.parametrize(
    ("verdict", "state"), [(Verdict.REJECTED, BatchState.REJECTED), (Verdict.HELD, BatchState.HELD)]
)
def test_a_candidate_that_is_not_published_ends_its_batch(verdict: Verdict, state: BatchState) -> None:
    assert [each.state for each in settled(a_candidate_evaluated(verdict=verdict))] == [state]


def test_an_accepted_candidate_waits_for_its_release() -> None:
    assert told(a_candidate_evaluated(verdict=Verdict.ACCEPTED)) == []


def test_a_candidate_ends_its_batch_only_if_it_can_never_be_published() -> None:
    assert told(a_candidate_trained(is_publishable=True)) == []
    assert [each.state for each in settled(a_candidate_trained(is_publishable=False))] == [
        BatchState.WARMED_UP
    ]


def test_a_failed_training_ends_its_batch() -> None:
    (ended,) = settled(a_training_failed())
    assert (ended.state, ended.candidate_id, ended.release_id) == (BatchState.FAILED, None, None)


def test_a_scenario_is_told_to_every_partition_of_calls_and_to_its_own_of_experience() -> None:
    event = a_scenario_configured()
    places = [(each.topic, each.partition) for each in told(event)]
    assert places == [(INTERACTIONS, 0), (INTERACTIONS, 1), (INTERACTIONS, 2), (EXPERIENCE, None)]
    assert all(isinstance(each.event, ScenarioConfigured) for each in told(event))


@pytest.mark.parametrize("event", [a_roll_back_release(), a_promote_candidate(), a_swap_requested()])
def test_commands_and_swaps_are_nothing_to_the_folds(event: Event) -> None:
    assert told(event) == []


def test_what_belongs_to_another_topic_is_refused() -> None:
    with pytest.raises(RejectedError, match="ExperienceAssembled"):
        relay(an_experience_assembled(), num_partitions=1)
