"""What is documented of a trainer is shown, and what is shown is documented."""

import re
from pathlib import Path

import torch

from recipes.sao.objective import SAOObjective
from tests.builders import a_candidate_trained, a_training_failed
from tests.unit.test_sao_objective import OPTIONS, PlainCritic, a_batch, some_logits
from trainers.metrics import TrainerMetrics
from trainers.step import GRAD_NORM, MEASURED

DOC = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(reef_trainer_\w+)` \| (\w+) \|", re.MULTILINE)


def shown(metrics: TrainerMetrics) -> set[tuple[str, str]]:
    return {
        (family.name + ("_total" if family.type == "counter" else ""), family.type)
        for family in metrics.registry.collect()
    }


def test_the_table_of_metrics_is_what_a_trainer_shows() -> None:
    torch.manual_seed(0)
    objective = SAOObjective(OPTIONS, PlainCritic())
    batch = a_batch()
    _, sums = objective.loss(batch, some_logits(batch))
    found = dict(objective.metrics({**sums, **objective.auxiliary_step([batch])}))
    metrics = TrainerMetrics(a_candidate_trained().scenario)
    for point in ("stepped", "saved", "pointed", "exported", "announced"):
        metrics.passed(point)
    metrics.observe(a_candidate_trained(metrics=found | dict.fromkeys([*MEASURED, GRAD_NORM], 1.0)))
    assert shown(metrics) == set(ROW.findall(DOC.read_text()))


def test_batches_are_counted_by_how_they_ended() -> None:
    metrics = TrainerMetrics(a_candidate_trained().scenario)
    metrics.observe(a_candidate_trained())
    metrics.observe(a_training_failed(reason="non_finite"))
    metrics.observe(a_training_failed(reason="non_finite"))
    counted = {
        (sample.labels["result"], sample.labels["reason"]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "reef_trainer_batches_total"
    }
    assert counted == {("trained", ""): 1, ("failed", "non_finite"): 2}
