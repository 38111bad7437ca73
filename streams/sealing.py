"""Pure: a batch is chosen by the recipe and sealed: its samples, then the seal that names their base.

Sealed only when no batch is in flight, so that data is fresh and the base is always the head.

Next: schemas/events/training.py
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from struct import pack

from schemas.events import (
    BatchSealed,
    ExperienceAssembled,
    ExperienceRevised,
    OutcomeReason,
    TrainingSample,
    TrainingTarget,
)
from schemas.ids import BatchId, ExperienceId, ScenarioName, Sha256, derived_id
from schemas.topics import TRAINING
from streams.batch_entries import NEVER_US, Head, Progress, Sample, Stage
from streams.ending import BatchMoment, drop
from streams.scenario import Scenario


def seal_if_ready(moment: BatchMoment, name: ScenarioName) -> None:
    """Seal the next batch, if its time has come. Raises FetchNeededError."""
    while chosen := _choose(moment, name):
        samples = [(each, _known(moment, each)) for each in chosen]
        moment.require([at for _, sample in samples for at in _offsets(sample)])
        lost = [(each, sample) for each, sample in samples if _experience(moment, sample) is None]
        if not lost:
            _seal(moment, name, samples)
            return
        for each, sample in lost:  # and choose again without them
            drop(moment, each, sample, OutcomeReason.LOG_TRUNCATED)


def _choose(moment: BatchMoment, name: ScenarioName) -> tuple[ExperienceId, ...]:
    state = moment.state
    scenario, head, progress = state.scenario(name), state.head(name), state.progress(name)
    if scenario is None or head is None or scenario.is_retired or scenario.target is TrainingTarget.NONE:
        return ()
    if progress.batch_id is not None or progress.judged_offset < progress.judge_until_offset:
        return ()
    ready = state.ready(name)
    chosen = scenario.recipe.select(ready, head.release_seq) if ready else ()
    assert len(set(chosen)) == len(chosen), f"{scenario.recipe_path} chose an experience twice"
    for each in chosen:
        sample = state.sample(each)
        assert sample is not None, f"{scenario.recipe_path} chose {each}, which it was not shown"
        assert sample.stage is Stage.WAITING, f"{scenario.recipe_path} chose {each}, which does not wait"
    return tuple(chosen)


def _known(moment: BatchMoment, experience_id: ExperienceId) -> Sample:
    sample = moment.state.sample(experience_id)
    assert sample is not None, experience_id
    return sample


def _offsets(sample: Sample) -> list[int]:
    return [sample.offset] if sample.revision_offset is None else [sample.offset, sample.revision_offset]


def _experience(moment: BatchMoment, sample: Sample) -> ExperienceAssembled | None:
    """Read an experience back, as revised until now."""
    experience = moment.read(sample.offset, ExperienceAssembled)
    if experience is None or sample.revision_offset is None:
        return experience
    revision = moment.read(sample.revision_offset, ExperienceRevised)
    if revision is None:
        return None
    return replace(experience, reward=sample.reward, feedback=revision.feedback, report_ids=sample.report_ids)


def _seal(moment: BatchMoment, name: ScenarioName, samples: Sequence[tuple[ExperienceId, Sample]]) -> None:
    state = moment.state
    scenario, head, progress = state.scenario(name), state.head(name), state.progress(name)
    assert scenario is not None, name
    assert head is not None, name
    ids = tuple([experience_id for experience_id, _ in samples])
    batch_id = BatchId(derived_id("Batch", name, str(progress.next_batch_seq), *ids))
    experiences = [experience for _, sample in samples if (experience := _experience(moment, sample))]
    for index, experience in enumerate(experiences):
        sample = TrainingSample(batch_id=batch_id, scenario=name, index=index, experience=experience)
        moment.say(sample, TRAINING)
    moment.say(_sealed(moment, scenario, head, progress, batch_id, experiences), TRAINING)
    for experience_id, waiting in samples:
        sealed = replace(waiting, stage=Stage.SEALED, batch_id=batch_id, deadline_us=NEVER_US)
        state.put_sample(experience_id, sealed)
    in_flight = replace(
        progress,
        next_batch_seq=progress.next_batch_seq + 1,
        batch_id=batch_id,
        base_seq=head.release_seq,
        experience_ids=ids,
    )
    state.put_progress(name, in_flight)


def _sealed(
    moment: BatchMoment,
    scenario: Scenario,
    head: Head,
    progress: Progress,
    batch_id: BatchId,
    experiences: Sequence[ExperienceAssembled],
) -> BatchSealed:
    return BatchSealed(
        batch_id=batch_id,
        scenario=scenario.name,
        batch_seq=progress.next_batch_seq,
        recipe=scenario.recipe_path,
        recipe_digest=scenario.recipe_digest,
        base_release_id=head.release_id,
        base_release_seq=head.release_seq,
        base_candidate_id=head.candidate_id,
        base_artifact_uri=head.artifact_uri,
        base_content_sha256=head.content_sha256,
        experience_ids=tuple([experience.experience_id for experience in experiences]),
        content_sha256=batch_content_sha256(experiences),
        sealed_at_us=moment.state.now_us,
    )


def batch_content_sha256(experiences: Sequence[ExperienceAssembled]) -> Sha256:
    """Digest what a batch teaches: id, tokens, mask, logprobs and reward of each, behind their lengths."""
    hashed = sha256()
    for experience in experiences:
        assert experience.reward is not None, experience.experience_id
        reward = pack("<d", experience.reward)
        for part in (
            experience.experience_id.encode(),
            experience.token_ids,
            experience.loss_mask,
            experience.logprobs,
            reward,
        ):
            hashed.update(len(part).to_bytes(4, "big") + part)
    return Sha256(hashed.hexdigest())
