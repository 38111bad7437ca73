"""Learn "answer briefly" with a recipe, on the trainer's own step, and keep the curve.

python -m tests.learning.answer_briefly sao 0 --steps 40 --out docs/learning
python -m tests.learning.answer_briefly plot --out docs/learning
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import torch
from matplotlib.figure import Figure
from transformers import PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from deploy.embedded.model import prepare_model
from deploy.settings import read_cache_dir
from recipes.sao.recipe import SAOOptions
from schemas.recipe import RecipeOptions
from schemas.settings import TrainingSettings
from tests.learning.brief import experience_of, questions_of, sample, tokenizer_of
from tests.tiny import alone, batch_of, run_ranks
from trainers.attention import SDPA
from trainers.build import Blueprint, build
from trainers.model import load_model
from trainers.ranks import Ranks
from trainers.step import Learner, StepLimits, train
from trainers.weights import gathered, named_weights

BATCH_SIZE = 16
LEARNING_RATE = 1e-5
GOOD = 0.9
RECIPES: dict[str, tuple[str, RecipeOptions]] = {
    "sao": ("recipes.sao.objective:SAOObjective", SAOOptions(batch_size=BATCH_SIZE)),
    "reinforce": ("recipes.reinforce.objective:ReinforceObjective", RecipeOptions(batch_size=BATCH_SIZE)),
}


def learn(ranks: Ranks, recipe: str, seed: int, num_steps: int, threads: int) -> list[float]:
    """Give the mean reward of each batch, until two in a row are good or the steps are over."""
    torch.set_num_threads(threads)
    folder = Path(prepare_model("smollm2-135m", read_cache_dir()).source)
    objective, options = RECIPES[recipe]
    training = TrainingSettings(learning_rate=LEARNING_RATE, threads=threads, seed=seed)
    blueprint = Blueprint(
        model_folder=folder, objective=objective, options=options, lora=None, training=training
    )
    learner = build(blueprint, ranks)
    tokenizer = tokenizer_of(folder)
    limits = StepLimits(
        pack_tokens_max=training.pack_tokens_max, gradient_norm_max=training.gradient_norm_max
    )
    rewards: list[float] = []
    disable_progress_bar()  # type: ignore[no-untyped-call]
    for step in range(num_steps):
        began_s = perf_counter()
        questions = questions_of(seed, step, BATCH_SIZE)
        sampler = whole_copy(learner, folder, ranks)
        answers = ranks.share(
            sample(sampler, tokenizer, questions, 1_000 * seed + step) if ranks.is_first else None
        )
        experiences = [experience_of(answer, str(step), str(n)) for n, answer in enumerate(answers)]
        sampled_s = perf_counter() - began_s
        metrics = train(learner, batch_of(experiences, step), ranks, limits)
        rewards.append(metrics["reward_mean"])
        shown = {name: round(value, 3) for name, value in metrics.items()}
        sys.stderr.write(f"{recipe} seed {seed} step {step} sampled in {sampled_s:.1f} s {shown}\n")
        if len(rewards) >= 2 and min(rewards[-2:]) >= GOOD:
            break
    return rewards


def whole_copy(learner: Learner, folder: Path, ranks: Ranks) -> PreTrainedModel:
    """Give a model that can sample by itself."""
    if ranks.size == 1:
        return learner.policy.model
    model = load_model(folder, attention=SDPA)
    weights = gathered(named_weights(learner.policy.model), keeps=True)
    with torch.no_grad():
        for name, parameter in named_weights(model).items():
            parameter.copy_(weights[name])
    return model


def learn_and_tell(ranks: Ranks, given: argparse.Namespace) -> None:
    """Learn, and keep the curve."""
    rewards = learn(ranks, given.recipe, given.seed, given.steps, given.threads)
    if not ranks.is_first:
        return
    curve = {"recipe": given.recipe, "seed": given.seed, "learning_rate": LEARNING_RATE, "rewards": rewards}
    name = f"{given.recipe}-{given.seed}" + ("" if ranks.size == 1 else f"-{ranks.size}ranks")
    (given.out / f"{name}.json").write_text(json.dumps(curve, indent=1) + "\n")


def plot(folder: Path) -> None:
    """Draw every curve in the folder into one picture a recipe."""
    for recipe in RECIPES:
        paths = sorted(folder.glob(f"{recipe}-*.json"))
        if not paths:
            continue
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for path in paths:
            axes.plot(json.loads(path.read_text())["rewards"], marker="o", label=path.stem)
        axes.axhline(GOOD, color="grey", linewidth=0.8)
        axes.set(
            xlabel="batch of 16", ylabel="mean reward", ylim=(0, 1.02), title=f"answer briefly: {recipe}"
        )
        axes.legend()
        figure.savefig(folder.parent / f"learning-{recipe}.png", dpi=120, metadata={"Software": None})


def main(words: Sequence[str] | None = None) -> None:
    """Learn, or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", choices=[*RECIPES, "plot"])
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/learning"))
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.recipe == "plot":
        plot(given.out)
        return
    if given.ranks == 1:
        learn_and_tell(alone(), given)
        return
    with tempfile.TemporaryDirectory() as folder:
        run_ranks(given.ranks, learn_and_tell, Path(folder), given)


if __name__ == "__main__":
    main()
