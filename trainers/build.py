"""Shell: a model's folder and a recipe become a learner: networks, optimizers and mathematics put together.

Not the loading of releases and checkpoints into it; that happens afterwards, in place.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import AdamW
from transformers import PreTrainedModel

from schemas.errors import RejectedError
from schemas.objective import Critic, CriticKind, Objective
from schemas.recipe import RecipeOptions, load_object
from schemas.settings import TrainingSettings
from trainers.attention import implementation_for
from trainers.critic import TrainedCritic
from trainers.model import Lora, Policy, ValueHead, ValueModel, add_adapter, load_model
from trainers.parallel import Precision, spread
from trainers.ranks import Ranks
from trainers.step import Learner
from trainers.weights import named_weights, refuse_strangers, trainable

CRITIC_LEARNING_RATES = {"head": 1e-3, "separate": 5e-6}
"""A head at the rate of a model is dead; a model at the rate of a head breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What a learner is made of."""

    model_folder: Path
    """The configured base model, complete with its configuration."""
    objective: str
    """Dotted path of the recipe's objective."""
    options: RecipeOptions
    """The recipe's."""
    lora: Lora | None
    """An adapter is trained instead of all weights."""
    training: TrainingSettings
    """Rates and limits."""

    @property
    def critic_kind(self) -> CriticKind:
        """The critic that the objective asks for."""
        kind: CriticKind = objective_type(self.objective).critic_kind(self.options)
        return kind


def build(blueprint: Blueprint, ranks: Ranks) -> Learner:
    """Make a learner on the configured base model, optimizers empty. Raises RejectedError."""
    policy = _policy(blueprint, ranks)
    critic = _critic(blueprint, ranks, policy)
    return Learner(
        policy=policy,
        optimizer=_optimizer(policy, blueprint.training, blueprint.training.learning_rate),
        critic=critic,
        objective=objective_type(blueprint.objective)(blueprint.options, critic),
        num_steps=0,
    )


def objective_type(path: str) -> type[Objective]:
    """Import an objective by its dotted path. Raises RejectedError."""
    found: Any = load_object(path)
    missing = [name for name in _OBJECTIVE_NAMES if not hasattr(found, name)]
    if missing:
        raise RejectedError(
            f"expected {path} to be an objective, got one without {', '.join(missing)}: see docs/recipes.md",
            reason="bad_recipe",
        )
    objective: type[Objective] = found
    return objective


_OBJECTIVE_NAMES = ("critic_kind", "trains_policy", "loss", "auxiliary_step", "metrics")


def _policy(blueprint: Blueprint, ranks: Ranks) -> Policy:
    model = _model(blueprint, ranks)
    refuse_strangers(named_weights(model), blueprint.model_folder)
    if blueprint.lora is not None:
        add_adapter(model, blueprint.lora, seed=blueprint.training.seed)
    policy = Policy(model)
    _spread(policy, blueprint.training, ranks)
    return policy


def _critic(blueprint: Blueprint, ranks: Ranks, policy: Policy) -> TrainedCritic | None:
    kind = blueprint.critic_kind
    if kind == "none":
        return None
    network: ValueHead | ValueModel
    if kind == "head":
        network = ValueHead(policy.model.config.hidden_size).to(ranks.device)
    else:
        network = ValueModel(_model(blueprint, ranks))
        _spread(network, blueprint.training, ranks)
    rate = blueprint.training.critic_learning_rate
    optimizer = _optimizer(network, blueprint.training, CRITIC_LEARNING_RATES[kind] if rate is None else rate)
    norm_max = blueprint.training.gradient_norm_max
    critic = TrainedCritic(network, optimizer, ranks, gradient_norm_max=norm_max)
    _: Critic = critic
    return critic


def _model(blueprint: Blueprint, ranks: Ranks) -> PreTrainedModel:
    return load_model(blueprint.model_folder, attention=implementation_for(ranks.device))


def _spread(network: nn.Module, training: TrainingSettings, ranks: Ranks) -> None:
    spread(
        network,
        ranks,
        precision=precision_for(training, ranks),
        has_activation_checkpointing=training.has_activation_checkpointing,
    )


def precision_for(training: TrainingSettings, ranks: Ranks) -> Precision:
    """What is computed in: bf16 on CUDA, unless told otherwise."""
    if training.precision == "auto":
        return "bf16" if ranks.device.type == "cuda" else "fp32"
    if training.precision == "bf16" and ranks.device.type != "cuda":
        raise ValueError("expected training.precision fp32 or auto without CUDA, got bf16: change it")
    return training.precision


def _optimizer(network: nn.Module, training: TrainingSettings, learning_rate: float) -> AdamW:
    return AdamW(
        trainable(network).values(),
        lr=learning_rate,
        betas=(training.adam_beta1, training.adam_beta2),
        weight_decay=training.weight_decay,
    )
