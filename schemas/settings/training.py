"""Pure: the sections `training` and `evaluation`: a batch becomes a candidate, a candidate a release."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, JsonValue

from schemas.settings.reef import Target
from schemas.settings.section import Evaluator, Section, Url


class TrainingSettings(Section):
    """The trainer, whatever the recipe."""

    target: Target = Field("full", description="what is trained: all weights, a low-rank adapter, or nothing")
    ranks: int = Field(1, ge=1, le=1_024, description="processes that train together")
    threads: int | None = Field(
        None, ge=1, description="threads of a rank; empty: cores divided by ranks, at least 1"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where the trainer runs")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="of the computation; auto: bf16 on CUDA, else fp32. State is always fp32"
    )
    learning_rate: float = Field(1e-6, ge=0, description="of the actor")
    critic_learning_rate: float | None = Field(
        None, ge=0, description="of the critic; empty: 1e-3 for a head, 5e-6 for a separate one"
    )
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's first beta")
    adam_beta2: float = Field(0.95, ge=0, lt=1, description="AdamW's second beta")
    weight_decay: float = Field(0.0, ge=0, description="AdamW's weight decay")
    gradient_norm_max: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    lora_rank: int = Field(16, ge=1, le=512, description="rank of the adapter when target is lora")
    lora_alpha: float = Field(32.0, gt=0, description="scale of the adapter when target is lora")
    pack_tokens_max: int = Field(2_048, ge=2, description="tokens that one forward pass holds")
    has_activation_checkpointing: bool = Field(
        False, description="compute activations again instead of keeping them"
    )
    checkpoints_kept: int = Field(2, ge=2, description="newest checkpoints kept, beside the base's")
    collective_timeout_s: float = Field(300.0, gt=0, description="longest wait of ranks for one another")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="of everything random in the trainer")


class EvaluationSettings(Section):
    """The gate between a candidate and its release."""

    module: Evaluator | None = Field(
        None, description="metric_bounds, prompt_set or package.module:Name; empty: the recipe's own"
    )
    config: Mapping[str, JsonValue] = Field(default_factory=dict, description="what the evaluator is told")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where a child process evaluates")
    engine: Url | None = Field(None, description="spare engine that evaluates instead of a child process")
    publish: Literal["auto", "review"] = Field(
        "auto", description="publish what is accepted, or hold it for an operator"
    )
    timeout_s: float = Field(600.0, gt=0, description="longest time for one evaluation")
    free_bytes_min: int = Field(
        10 * 2**30, ge=0, description="below this much free disk nothing is published"
    )
