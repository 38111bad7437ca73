"""Pure: what a gateway says of itself, as one screen: a block for each scenario, what is wrong in red.

Not the asking: deploy/commands/status.py. Not the facts: docs/http.md has their route.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from deploy.chain_table import SHORT_CHARS, operation_of

METRICS_MAX = 8
"""Of a training step; `--json` has all."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))

Status = Mapping[str, Any]


def status_screen(status: Status, *, url: str, now_us: int) -> Group:
    """Show everything that /reef/status says."""
    outbox = status["outbox"]
    first = Text.assemble((url, "bold"), "   outbox ", f"{outbox['num_events']:,} events")
    first.append(f", {outbox['size_bytes']:,} bytes, oldest {outbox['oldest_age_s']:.1f} s")
    if outbox["is_full"]:
        first.append(", full", style="bold red")
    parts: list[Text | Table] = [first, _services(status.get("services", {}))]
    parts += [Text(f"{name}: {said}", style="red") for name, said in sorted(status["problems"].items())]
    for name, one in sorted(status["scenarios"].items()):
        parts += [Text(), _scenario(name, one, now_us)]
    return Group(*parts)


def _services(services: Mapping[str, bool]) -> Text:
    line = Text("services")
    for name, answers in services.items():
        line.append(f"   {name} ")
        line.append("answers", style="green") if answers else line.append("silent", style="yellow")
    return line


def _scenario(name: str, one: Status, now_us: int) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    learning = [word for word in (one.get("recipe"), one.get("target")) if word]
    table.add_row(Text(name, style="bold"), Text(" ".join(learning)))
    for label, said in _facts(one, now_us):
        table.add_row(label, said)
    return table


def _facts(one: Status, now_us: int) -> Iterator[tuple[str, Text]]:
    yield "release", _release(one)
    yield "calls", Text(f"{one['open_calls']:,} open, {one['pending_calls']:,} pending")
    yield "experiences", _experiences(one)
    outcomes = sorted(one["outcomes"].items(), key=lambda found: -found[1])
    yield "outcomes", Text(", ".join(f"{name} {count:,}" for name, count in outcomes) or "none yet")
    yield "training", _training(one, now_us)
    yield "swap", _swap(one, now_us)


def _release(one: Status) -> Text:
    head, serving = one["head"], one["serving"]
    if head is None:
        return Text("none yet", style="yellow")
    line = Text("nothing serves", style="yellow")
    if serving is not None:
        line = Text(f"{serving['release_seq']} serves ({serving['release_id'][:SHORT_CHARS]})", style="green")
    if serving is None or serving["release_seq"] != head["release_seq"]:
        line.append(f", {head['release_seq']} is the head ({operation_of(head)})", style="yellow")
    if one["swap_problem"]:
        line.append(f", {one['swap_problem']}", style="red")
    return line


def _experiences(one: Status) -> Text:
    if one.get("consumer_lag") is None:
        return Text("unknown: a stream worker does not answer here", style="yellow")
    lag = ", ".join(f"{fold} {events:,}" for fold, events in one["consumer_lag"].items())
    waiting, batches = one["pending_experiences"], one["batches_in_flight"]
    return Text(f"{waiting:,} wait, {batches:,} batch(es) in flight; offsets behind the log: {lag}")


def _training(one: Status, now_us: int) -> Text:
    done, failed = one["last_training"], one["last_training_failure"]
    line = Text("no step yet")
    if done is not None:
        metrics = list(sorted(done["metrics"].items()))[:METRICS_MAX]
        values = ", ".join(f"{name} {value:.4g}" for name, value in metrics)
        line = Text(f"step {done['step']}, {ago(done['trained_at_us'], now_us)}: {values}")
    if failed is not None and failed["failed_at_us"] > (done["trained_at_us"] if done else 0):
        line.append(f"; failed {ago(failed['failed_at_us'], now_us)}: {failed['reason']}", style="red")
    return line


def _swap(one: Status, now_us: int) -> Text:
    done, failed = one["last_swap"], one["last_swap_failure"]
    line = Text("none yet")
    if done is not None:
        line = Text(f"to release {done['release_seq']}, {ago(done['swapped_at_us'], now_us)}")
        line.append(f": paused {done['pause_ms']:.0f} ms, largest gap {done['max_stream_gap_ms']:.0f} ms")
    if failed is not None and failed["failed_at_us"] > (done["swapped_at_us"] if done else 0):
        line.append(f"; failed {ago(failed['failed_at_us'], now_us)}: {failed['reason']}", style="red")
    return line


def ago(time_us: int, now_us: int) -> str:
    """Say how long ago something was."""
    age_s = max(0, (now_us - time_us) // 1_000_000)
    for unit_s, name in _UNITS:
        if age_s >= unit_s:
            return f"{age_s // unit_s} {name} ago"
    return f"{age_s} s ago"
