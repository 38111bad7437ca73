from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RejectedError
from schemas.events import BatchSealed, TrainingSample
from tests.builders import a_training_sample, an_experience_assembled, pack_logprobs, pack_mask, pack_tokens
from tests.tiny import a_batch, batch_of
from trainers.batch import Batch, Samples, check, gather

RECIPE = "recipes.sao.recipe:SAORecipe"


def samples_of(batch: Batch) -> list[TrainingSample]:
    sealed = batch.sealed
    return [
        a_training_sample(batch_id=sealed.batch_id, index=index, experience=experience)
        for index, experience in enumerate(batch.experiences)
    ]


def events_of(batch: Batch) -> list[TrainingSample | BatchSealed]:
    return [*samples_of(batch), batch.sealed]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_every_seal_gives_one_batch_with_all_its_samples(sizes: list[int]) -> None:
    samples: Samples = ()
    found: list[Batch] = []
    expected = [a_batch(seq, num_samples=size) for seq, size in enumerate(sizes)]
    for batch in expected:
        for event in events_of(batch):
            samples, complete = gather(samples, event, batch.next_offset)
            found += complete
    assert found == expected
    assert samples == ()
    for batch in found:
        check(batch, recipe=RECIPE, vocab_size=96)


def test_samples_of_a_batch_that_was_never_sealed_are_left_behind() -> None:
    lost, batch = a_batch(0), a_batch(1)
    samples: Samples = ()
    for event in [*samples_of(lost), *samples_of(batch)]:
        samples, complete = gather(samples, event, 0)
        assert complete == ()
    _, (found,) = gather(samples, batch.sealed, batch.next_offset)
    assert found == batch


def test_a_batch_that_lacks_a_sample_is_handed_on_and_refused() -> None:
    batch = a_batch(0)
    samples: Samples = ()
    for event in samples_of(batch)[1:]:
        samples, _ = gather(samples, event, 0)
    _, (found,) = gather(samples, batch.sealed, 9)
    with pytest.raises(RejectedError, match="expected the 5 samples") as refused:
        check(found, recipe=RECIPE, vocab_size=96)
    assert refused.value.reason == "incomplete_batch"


def test_a_batch_of_another_recipe_is_refused() -> None:
    with pytest.raises(RejectedError, match="expected a batch of another") as refused:
        check(a_batch(0), recipe="another", vocab_size=96)
    assert refused.value.reason == "foreign_recipe"


@pytest.mark.parametrize(
    "changes",
    [
        {"reward": None},
        {"loss_mask": pack_mask([1] * 7)},
        {"loss_mask": pack_mask([0] * 7)},
        {"logprobs": pack_logprobs([0.0])},
        {"token_ids": pack_tokens([1, 2, 3, 4, 5, 6, 96])},
    ],
)
def test_a_sample_that_cannot_be_trained_is_named(changes: dict[str, Any]) -> None:
    good = {"token_ids": pack_tokens([1, 2, 3, 4, 5, 6, 95])}
    check(batch_of([an_experience_assembled(**good)], 0), recipe=RECIPE, vocab_size=96)
    bad = an_experience_assembled(**(good | changes))
    with pytest.raises(RejectedError, match=str(bad.experience_id)):
        check(batch_of([bad], 0), recipe=RECIPE, vocab_size=96)
