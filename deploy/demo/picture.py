"""Shell: the learning curve of a run as a picture, drawn from its events."""

from pathlib import Path

from matplotlib.figure import Figure

from deploy.demo.story import GOOD, Story


def draw(story: Story, path: Path) -> None:
    """Write a PNG: the mean reward of each batch, and the release that it became."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    batches = story.sealed
    numbers, rewards = [b.number for b in batches], [b.reward_mean for b in batches]
    for batch in batches:
        axes.scatter([batch.number] * len(batch.rewards), batch.rewards, s=9, color="tab:blue", alpha=0.25)
    axes.plot(numbers, rewards, marker="o", color="tab:blue", label="mean reward of a batch")
    for batch in batches:
        if batch.release_seq is not None:
            name, place = f"r{batch.release_seq}", (batch.number, batch.reward_mean)
            axes.annotate(name, place, xytext=(0, 7), textcoords="offset points", ha="center", fontsize=7)
    axes.axhline(GOOD, color="grey", linewidth=0.8, linestyle="--")
    axes.set(
        xlabel="batch (r: the release it became)",
        ylabel="reward",
        ylim=(-0.03, 1.08),
        title=f"{story.scenario}: a model learns from {story.num_reports} reports",
    )
    axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})
