"""Pure: a scenario's chain of releases as a table, and which release or candidate an operator meant.

Not the asking: deploy/commands/chain.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from schemas.errors import RejectedError
from schemas.events import ArtifactKind
from schemas.ids import release_seq_named
from schemas.kinds import is_weights

SHORT_CHARS = 12
"""Of an id on a screen; any beginning that only one has can be given back."""

FIRST_METRICS = ("score", "reward_mean")
"""What an evaluation and a training say of quality."""
METRICS_MAX = 3
"""On a screen."""

Row = Mapping[str, Any]
Moment = Callable[[int], str]
"""Writes microseconds UTC."""


def chain_table(rows: Sequence[Row], *, is_whole: bool, when: Moment) -> Table:
    """Show releases as the gateway gave them, newest first; `is_whole` for whole ids, `when` for times."""
    table = Table(box=None, pad_edge=False)
    for title in ("", "release", "id", "operation", "published (UTC)", "content", "batches"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("release", "batches") else "left")
    table.add_column("metrics", overflow="fold")
    for row in rows:
        table.add_row(
            _state(row),
            str(row["release_seq"]),
            _short(row["release_id"], is_whole),
            _operation(row, rows),
            when(row["published_at_us"]),
            _short(row["content_sha256"], is_whole),
            str(len(row["batch_ids"])),
            measured(row["metrics"], is_whole=is_whole),
        )
    return table


def held_table(held: Sequence[Row], *, is_whole: bool, when: Moment) -> Table:
    """Show candidates that wait for an operator."""
    table = Table(box=None, pad_edge=False)
    for title in ("held candidate", "evaluated (UTC)"):
        table.add_column(title, no_wrap=True)
    table.add_column("metrics", overflow="fold")
    for one in held:
        table.add_row(
            one["candidate_id"], when(one["evaluated_at_us"]), measured(one["metrics"], is_whole=is_whole)
        )
    return table


def chosen_release(rows: Sequence[Row], word: str) -> Row:
    """Find the release that a number (`7` or `r7`), an id or its beginning names. Raises RejectedError."""
    seq = release_seq_named(word)
    if seq is not None:
        found = [row for row in rows if row["release_seq"] == seq]
    else:
        found = [row for row in rows if row["release_id"].startswith(word)]
    exact = [row for row in found if row["release_id"] == word]
    if len(exact or found) == 1:
        return (exact or found)[0]
    got = f"{len(found)} that begin so" if found else "none"
    raise RejectedError(
        f"expected one release named {word!r}, got {got}: give its number or id as `reef releases` shows it",
        reason="no_such_release",
    )


def chosen_candidate(held: Sequence[Row], word: str) -> str:
    """Complete the beginning of a held candidate's id; anything else is for the gateway to judge."""
    found = [str(one["candidate_id"]) for one in held if one["candidate_id"].startswith(word)]
    return found[0] if len(found) == 1 else word


def measured(metrics: Mapping[str, float], *, is_whole: bool) -> str:
    """Write metrics in one line, those first that say how good it is; not `is_whole`, only a few."""
    names = sorted(metrics, key=lambda name: (name not in FIRST_METRICS, name))
    shown = names if is_whole else names[:METRICS_MAX]
    said = [f"{name} {metrics[name]:.4g}" for name in shown]
    return ", ".join([*said, f"{len(names) - len(shown)} more"] if len(names) > len(shown) else said)


def _state(row: Row) -> Text:
    if row["serving"]:
        return Text("serves", style="bold green")
    if not row["current"]:
        return Text("")
    return Text("head, not serving yet", style="yellow") if row["pending"] else Text("head")


def operation_of(row: Row) -> str:
    """Name a release's operation, and its kind where it is no weights."""
    return str(row["operation"]) + ("" if is_weights(ArtifactKind(row["kind"])) else f" of {row['kind']}")


def _operation(row: Row, rows: Sequence[Row]) -> str:
    target, operation = row.get("rollback_target_release_id"), operation_of(row)
    if target is None:
        return operation
    seqs = [str(one["release_seq"]) for one in rows if one["release_id"] == target]
    return f"{operation} to {seqs[0] if seqs else target[:SHORT_CHARS]}"


def _short(text: str, is_whole: bool) -> str:
    return text if is_whole else text[:SHORT_CHARS]
