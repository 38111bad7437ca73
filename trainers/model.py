"""Shell: a release becomes the networks that are trained: the policy, and the critic beside it.

Not the spreading over ranks (trainers/parallel.py). Everything is loaded in fp32 on the CPU, by every rank;
dropout is off, because with it the policy would not be the one that sampled.

Axes: `token`, `action`, `vocab`, `width` as in trainers/packing.py.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from schemas.errors import RejectedError
from trainers.attention import mask_for
from trainers.packing import Pack

UNKNOWN_TO_US = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""What some models do to their logits after the last layer, and we do not."""
FULL_ATTENTION = "full_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """The form of an adapter."""

    rank: int
    """Width of the two factors."""
    alpha: float
    """The product is scaled by alpha / rank."""

    def peft_config(self) -> LoraConfig:
        """Adapt every linear layer but the last."""
        return LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,  # type: ignore[arg-type]  # peft scales by any number
            lora_dropout=0.0,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )


class Policy(nn.Module):
    """A causal language model that gives logits where actions were chosen, and nowhere else."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, pack: Pack) -> tuple[Tensor, Tensor]:
        """Give logits `[action, vocab]` in fp32, tempered as sampled, and the states `[action, width]`."""
        chosen = _hidden(self.body, pack)[pack.action_places]
        return self.head(chosen).float() / pack.temperatures[:, None], chosen.float()

    @property
    def body(self) -> nn.Module:
        """Everything below the last layer's norm, and that."""
        body: nn.Module = self.model.base_model
        return body

    @property
    def head(self) -> nn.Module:
        """From hidden states to logits."""
        head: nn.Module = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        return head


class ValueHead(nn.Module):
    """A linear estimate from the actor's hidden states; zero until trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Estimate `[action]` from `[action, width]`."""
        values: Tensor = self.linear(hidden)[:, 0]
        return values


class ValueModel(nn.Module):
    """A model of its own that estimates values; begins as the base's body under a zero head."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.body: nn.Module = model.base_model
        self.head = ValueHead(model.config.hidden_size)

    def forward(self, pack: Pack) -> Tensor:
        """Estimate `[action]`, each from the place before it."""
        values: Tensor = self.head(_hidden(self.body, pack)[pack.action_places])
        return values.float()


def _hidden(body: nn.Module, pack: Pack) -> Tensor:
    """`[token, width]` after the last layer's norm."""
    found = body(
        input_ids=pack.token_ids[None],
        position_ids=pack.positions[None],
        attention_mask=mask_for(pack.documents, pack.positions),
        use_cache=False,
    )
    hidden: Tensor = found.last_hidden_state[0]
    return hidden


def load_model(folder: Path, *, attention: str) -> PreTrainedModel:
    """Load a model's folder in fp32. Raises RejectedError when it is no model that we can train."""
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=attention, local_files_only=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise RejectedError(
            f"expected a model of transformers in {folder}, got {error}: name a complete folder",
            reason="base_unavailable",
        ) from error
    _refuse_unknown(model.config)
    model.train(mode=False)
    return model


def _refuse_unknown(config: Any) -> None:
    strange = [name for name in UNKNOWN_TO_US if getattr(config, name, None) not in (None, 1.0)]
    strange += [kind for kind in set(getattr(config, "layer_types", None) or ()) if kind != FULL_ATTENTION]
    if strange:
        raise RejectedError(
            f"expected a model with full attention and plain logits, got {config.model_type} with "
            f"{', '.join(strange)}: train another model",
            reason="base_unavailable",
        )


def add_adapter(model: PreTrainedModel, lora: Lora, *, seed: int) -> None:
    """Freeze a model and put an adapter into it; the adapter begins without effect."""
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(lora.peft_config(), model)
