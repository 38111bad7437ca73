"""Pure: the life of a call, a report, a batch or a release as lines: stage, time, place in the log, what.

Not the asking: deploy/commands/explain.py. Not the reasons: deploy/why.py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from deploy.why import why
from schemas.topics import INTERACTIONS

Told = Mapping[str, Any]
"""A part of the gateway's answer."""
CALLS_SHOWN_MAX = 20
"""Lines about calls of one batch on a screen; --json has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One line."""

    name: str
    """What it is about: call, report, experience, batch, candidate, verdict, release, swap."""
    what: str
    """What happened."""
    at_us: int | None = None
    """When; None where it is not known."""
    place: str = ""
    """`topic/partition@offset`."""


def stages_of(told: Told) -> list[Stage]:
    """Give the lines of a life, in the order of causes."""
    match told["kind"]:
        case "call":
            return list(_of_call(told))
        case "report":
            return [_report(told["report"], told["report"].get("places", ())), *_calls(told["calls"])]
        case "batch":
            batch, releases = _of_batch(told["batch"]), _of_releases(told["releases"])
            return [*batch, *releases, *_calls(told["calls"])]
        case _:
            return list(_of_release(told))


def answer_of(told: Told) -> str:
    """Say in a sentence what became of it."""
    match told["kind"]:
        case "call":
            return why(told["call"], experience=told["experience"])
        case "report":
            states = _states(told["calls"], "the call it judges", "calls it judges")
            refusal = told["report"].get("refusal")
            return f"refused as {refusal['reason']}, so it changed nothing; {states}" if refusal else states
        case "batch":
            return _batch_answer(told)
        case _:
            release = told["release"]
            num_calls = sum(len(batch["calls"]) for batch in told["batches"])
            learned = f"it learned from {num_calls} call(s) of {len(told['batches'])} batch(es)"
            served = "it was swapped in" if release["swaps"] else "no swap to it is known here"
            return f"release {release['release_seq']} by {release['operation']}: {learned}; {served}"


def with_answers(told: Told) -> dict[str, Any]:
    """Add the sentences for programs: `answer` for the whole, `why` for each call."""
    made = {**told, "answer": answer_of(told)}
    if "calls" in told:
        made["calls"] = _each_why(told["calls"])
    if "batches" in told:
        made["batches"] = [{**batch, "calls": _each_why(batch["calls"])} for batch in told["batches"]]
    return made


def life_table(stages: Sequence[Stage], *, when: Callable[[int], str]) -> Table:
    """Show lines; `when` writes times."""
    table = Table(box=None, pad_edge=False)
    for title in ("stage", "when (UTC)", "where in the log"):
        table.add_column(title, no_wrap=True)
    table.add_column("what", overflow="fold")
    for stage in stages:
        at = "" if stage.at_us is None else when(stage.at_us)
        table.add_row(stage.name, at, stage.place, stage.what)
    return table


def place_text(place: Told | None) -> str:
    """Write a place in the log."""
    return "" if place is None else f"{place['topic']}/{place['partition']}@{place['offset']}"


def _of_call(told: Told) -> Iterator[Stage]:
    call = told["call"]
    place = None if call["offset"] is None else {**call, "topic": INTERACTIONS}
    served = ", ".join(_span(span) for span in call["served_by"])
    session = f"session {call['session']}" if call["session"] else "no session"
    yield Stage(
        name="call",
        what=f"{call['agent_record_id']} of {call['scenario']}, {session}; {call['outcome']}; {served}",
        at_us=call["completed_at"],
        place=place_text(place) or "on its way to the log",
    )
    for report in call["reports"]:
        yield _report(report, [report["place"]] if report["place"] else ())
    if (experience := told["experience"]) is not None:
        yield _experience(experience)
    if call["state"] == "dropped":
        yield _outcome(call)
    if told["batch"] is not None:
        yield from _of_batch(told["batch"])
    yield from _of_releases(told["releases"])
    if call["state"] == "trained":
        yield _outcome(call)


def _span(span: Told) -> str:
    """Say what a release wrote; -1 tokens stand for a share that nobody knows."""
    num_tokens = span["num_tokens"]
    return f"release {span['release_seq']}: " + (
        "some of the tokens" if num_tokens < 0 else f"{num_tokens} tokens"
    )


def _report(report: Told, places: Sequence[Told]) -> Stage:
    said = [f"report {report['agent_record_id']}"]
    said += [f"score {report['score']:g}"] if report.get("score") is not None else []
    said += ["with feedback"] if report.get("has_feedback") else []
    said += ["takes back"] if report.get("is_withdrawal") else []
    said += [f"in place of {report['supersedes']}"] if report.get("supersedes") else []
    refusal = report.get("refusal")
    said += [f"refused: {refusal['reason']}: {refusal['detail']}"] if refusal else []
    return Stage(
        name="report",
        what=", ".join(said),
        at_us=report.get("reported_at_us"),
        place=", ".join(place_text(place) for place in places) or "on its way to the log, or gone from it",
    )


def _experience(experience: Told) -> Stage:
    reward = "no reward" if experience["reward"] is None else f"reward {experience['reward']:g}"
    releases = sorted({experience["release_seq_first"], experience["release_seq_last"]})
    return Stage(
        name="experience",
        what=f"{experience['experience_id']}: {len(experience['receipts'])} call(s), {reward}, written by "
        f"release {' to '.join(map(str, releases))}",
        at_us=experience["assembled_at_us"],
        place=place_text(experience["place"]),
    )


def _outcome(call: Told) -> Stage:
    said = call["state"] if call["reason"] is None else f"{call['state']}: {call['reason']}"
    return Stage(name="outcome", what=said, at_us=call["settled_at"], place=place_text(call["settled_place"]))


def _of_batch(batch: Told) -> Iterator[Stage]:
    seal, training, failure, verdict = (batch[name] for name in ("seal", "training", "failure", "verdict"))
    if seal is None:
        yield Stage(name="batch", what=f"{batch['batch_id']}; its seal is not found any more")
    else:
        yield Stage(
            name="batch",
            what=f"{batch['batch_id']}, number {seal['batch_seq']}: {seal['num_samples']} sample(s) "
            f"on release {seal['base_release_seq']}",
            at_us=seal["sealed_at_us"],
            place=place_text(seal["place"]),
        )
    if training is not None:
        what = f"{training['candidate_id']}, step {training['step']}"
        what += "" if training["is_publishable"] else ", a warm-up that publishes nothing"
        yield Stage(
            name="candidate", what=what, at_us=training["trained_at_us"], place=place_text(training["place"])
        )
    if failure is not None:
        yield Stage(
            name="failure",
            what=f"{failure['reason']}: {failure['detail']}",
            at_us=failure["failed_at_us"],
            place=place_text(failure["place"]),
        )
    if verdict is not None:
        yield Stage(
            name="verdict",
            what=": ".join(
                [verdict["verdict"], *([", ".join(verdict["reasons"])] if verdict["reasons"] else [])]
            ),
            at_us=verdict["evaluated_at_us"],
            place=place_text(verdict["place"]),
        )


def _of_releases(releases: Sequence[Told]) -> Iterator[Stage]:
    for release in releases:
        yield Stage(
            name="release",
            what=f"release {release['release_seq']} by {release['operation']}: {release['release_id']}",
            at_us=release["published_at_us"],
            place=place_text(release["place"]),
        )
        for swap in release["swaps"]:
            yield Stage(
                name="swap",
                what=f"release {swap['release_seq']} serves at {swap['gateway_id']}, "
                f"pause {swap['pause_ms']:.0f} ms",
                at_us=swap["swapped_at_us"],
                place=place_text(swap["place"]),
            )


def _of_release(told: Told) -> Iterator[Stage]:
    yield from _of_releases([told["release"]])
    for batch in told["batches"]:
        yield from _of_batch(batch)
        yield from _calls(batch["calls"])


def _calls(calls: Sequence[Told]) -> Iterator[Stage]:
    for call in calls[:CALLS_SHOWN_MAX]:
        yield Stage(
            name="call",
            what=f"{call['agent_record_id']} {why(call)}",
            at_us=call.get("settled_at_us"),
            place=place_text(call.get("place")),
        )
    if len(calls) > CALLS_SHOWN_MAX:
        yield Stage(name="call", what=f"{len(calls) - CALLS_SHOWN_MAX} more: see --json")


def _batch_answer(told: Told) -> str:
    batch = told["batch"]
    if told["releases"]:
        seqs = ", ".join(str(release["release_seq"]) for release in told["releases"])
        return f"its candidate became release {seqs}"
    if batch["failure"] is not None and batch["training"] is None:
        return f"it could not be trained: {batch['failure']['reason']}"
    if batch["training"] is not None and not batch["training"]["is_publishable"]:
        return "it warmed up a critic, which publishes nothing"
    if batch["verdict"] is None:
        return "its candidate is not decided yet"
    return f"its candidate was {batch['verdict']['verdict']}, so no release came of it"


def _states(calls: Sequence[Told], one: str, several: str) -> str:
    if len(calls) == 1:
        return f"{one} is {why(calls[0])}"
    counts: dict[str, int] = {}
    for call in calls:
        word = str(call.get("reason") or call["state"])
        counts[word] = counts.get(word, 0) + 1
    return f"{len(calls)} {several}: " + ", ".join(f"{num} {word}" for word, num in sorted(counts.items()))


def _each_why(calls: Sequence[Told]) -> list[dict[str, Any]]:
    return [{**call, "why": why(call)} for call in calls]
