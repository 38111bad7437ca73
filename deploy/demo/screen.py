"""Shell: what a person sees of a run: the reward curve, batches with their releases and swaps, and fates."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.demo.story import BatchStory, Story

ROWS_MAX = 12
"""Batches shown at once; the newest."""
ANSWER_CHARS_MAX = 36
"""Shown of what a release says."""
BARS = " ▁▂▃▄▅▆▇█"


def screen(story: Story, note: str, question: str) -> RenderableType:
    """Draw the whole screen."""
    fates = story.fates_of(story.answered)
    told = "  ".join(f"{state} {number}" for state, number in fates.items())
    reasons = _reasons(story)
    counts = f"answered {len(story.answered)}  reports {story.num_reports}  {told}"
    return Panel(
        Group(
            curve([batch.reward_mean for batch in story.sealed]),
            batch_table(story.sealed[-ROWS_MAX:], question),
            Text(counts + (f"  (dropped: {reasons})" if reasons else "")),
            Text(note, style="dim"),
        ),
        title=f"{story.scenario}: learning from live feedback",
    )


def curve(rewards: Sequence[float]) -> Text:
    """Draw rewards between 0 and 1 as a row of bars."""
    bars = "".join(BARS[round(min(1.0, max(0.0, reward)) * (len(BARS) - 1))] for reward in rewards)
    last = f" {rewards[-1]:.2f}" if rewards else " no batch yet"
    return Text("reward by batch  ") + Text(bars, style="bold green") + Text(last)


def batch_table(batches: Sequence[BatchStory], question: str) -> Table:
    """Draw one line a batch, with what its release says to the one question."""
    table = Table(box=None, pad_edge=False)
    for title in ("batch", "reward", "sealed", "trained", "released", "release", "pause"):
        table.add_column(title, justify="right")
    table.add_column(question, no_wrap=True)
    for batch in batches:
        release = (
            batch.verdict if batch.release_seq is None else f"r{batch.release_seq} {batch.release_id[:8]}"  # type: ignore[index]
        )
        table.add_row(
            str(batch.number),
            f"{batch.reward_mean:.2f}",
            _seconds(batch.sealing_s),
            _seconds(batch.training_s),
            _seconds(batch.releasing_s),
            release or "…",
            "…" if batch.pause_ms is None else f"{batch.pause_ms:.0f} ms",
            _shortened(batch.answer),
        )
    return table


def batch_line(batch: BatchStory) -> str:
    """Tell one batch in a line, with what its release says to the one question."""
    told = f"batch {batch.number}  reward {batch.reward_mean:.2f}  trained in {_seconds(batch.training_s)}"
    if batch.first_token_us is None:
        return f"{told}  {batch.verdict or 'not released yet'}"
    pause = "…" if batch.pause_ms is None else f"{batch.pause_ms:.0f} ms"
    told += f"  r{batch.release_seq} serves {_seconds(batch.releasing_s)} later, after a pause of {pause}"
    return told if batch.answer is None else f'{told}, and says "{_shortened(batch.answer)}"'


def _reasons(story: Story) -> str:
    """Count this run's dropped calls by reason, in words."""
    return ", ".join(f"{reason} {number}" for reason, number in story.reasons_of(story.answered).items())


def fate_line(story: Story) -> str:
    """Say how every call of this run ended; those of earlier runs that end now are not among them."""
    fates = story.fates_of(story.answered)
    return (
        f"{len(story.answered)} answered = {fates['trained']} trained + {fates['dropped']} dropped "
        f"({_reasons(story) or 'none'}) + {fates['pending']} pending"
    )


def timeline(batches: Sequence[BatchStory]) -> Table:
    """Say for each release how long everything but the training took."""
    table = Table(
        box=None, pad_edge=False, title="from feedback to the first new token", title_justify="left"
    )
    for title in ("release", "feedback → sealed", "training", "candidate → first token", "all but training"):
        table.add_column(title, justify="right")
    for batch in batches:
        if batch.sealing_s is not None and batch.releasing_s is not None:
            table.add_row(
                f"r{batch.release_seq}",
                _seconds(batch.sealing_s),
                _seconds(batch.training_s),
                _seconds(batch.releasing_s),
                _seconds(batch.sealing_s + batch.releasing_s),
            )
    return table


def _shortened(answer: str | None) -> Text:
    told = " ".join((answer or "").split())
    return Text(told if len(told) <= ANSWER_CHARS_MAX else told[: ANSWER_CHARS_MAX - 1] + "…")


def _seconds(value: float | None) -> str:
    return "…" if value is None else f"{value:.1f} s"
