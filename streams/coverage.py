"""Pure: which calls a report covers: those it names, or the turns of their session up to them.

An untagged call's session is the chain of its ancestors by token prefix, so that two strangers who ask the
same question share nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple

from schemas.errors import RejectedError
from schemas.events import InferenceCompleted
from schemas.ids import Receipt
from schemas.packed import BYTES_PER_TOKEN
from streams.entries import Call, CallStatus, Fact, Report, prefix_digests, scenario_digest
from streams.receipts import made_us, route_in
from streams.trajectory import Turn, ancestors, choice_of
from streams.window import SessionMoment, receipt_of

_TAGGED = int(Fact.TAGGED)


class Covered(NamedTuple):
    """A call that a report credits."""

    receipt: Receipt
    call: Call
    turn: Turn | None
    """What it read and wrote; None when the log no longer holds it."""

    @classmethod
    def of(cls, event: InferenceCompleted, call: Call, choice: int | None, is_quoted: bool) -> "Covered":
        """Take a call as it was read back. Raises RejectedError when it lacks the answer that was named."""
        turn = Turn(event, call.offset, is_quoted, _choices(event, choice if is_quoted else None))
        return cls(event.receipt, call, turn)


def covered_calls(
    moment: SessionMoment, report: Report, quoted: dict[Receipt, Call], choice: int | None
) -> list[Covered]:
    """Find the waiting calls that a report credits, in log order. Raises RejectedError, FetchNeededError."""
    waiting = {name: call for name, call in quoted.items() if call.status is CallStatus.PENDING}
    is_tagged = report.is_session and any([call.facts & _TAGGED for call in quoted.values()])
    if is_tagged:
        waiting |= _turns_of_session(moment, report)
    moment.require([call.offset for call in waiting.values()])
    covered = {name: _read(moment, name, call, choice, name in quoted) for name, call in waiting.items()}
    if report.is_session and not is_tagged:
        for each in _ancestors(moment, report, quoted, choice):
            covered.setdefault(each.receipt, each)
    return sorted(covered.values(), key=_offset) if len(covered) > 1 else list(covered.values())


def covering_reports(moment: SessionMoment, receipt: Receipt, call: Call) -> Iterator[str]:
    """List the reports that credit a call which comes after them, by key. Raises FetchNeededError."""
    for key in moment.state.report_index.covering(route_in(receipt), made_us(receipt)):
        report = moment.state.report(key)
        assert report is not None, key
        is_of_scenario = scenario_digest(report.scenario) == call.scenario
        if is_of_scenario and _is_turn_of(moment, report, receipt, call):
            yield key


def _is_turn_of(moment: SessionMoment, report: Report, receipt: Receipt, call: Call) -> bool:
    state = moment.state
    names = [receipt_of(state, report.scenario, reference) for reference in report.references]
    quoted = {name: found for name in names if name is not None and (found := state.call(name))}
    if call.facts & _TAGGED or any([each.facts & _TAGGED for each in quoted.values()]):
        return bool(call.facts & _TAGGED)
    return any(each.receipt == receipt for each in _ancestors(moment, report, quoted, None))


def _offset(covered: Covered) -> int:
    return covered.call.offset


def _turns_of_session(moment: SessionMoment, report: Report) -> dict[Receipt, Call]:
    state, scenario = moment.state, scenario_digest(report.scenario)
    found: dict[Receipt, Call] = {}
    for receipt in state.routes.waiting(report.route):
        call = state.call(receipt)
        assert call is not None, receipt
        is_of_session = call.scenario == scenario and call.facts & _TAGGED
        if is_of_session and made_us(receipt) <= report.quoted_us:
            found[receipt] = call
    return found


def _ancestors(
    moment: SessionMoment, report: Report, quoted: dict[Receipt, Call], choice: int | None
) -> list[Covered]:
    """Find the waiting calls that the quoted ones continue."""
    scenario = moment.state.scenario(report.scenario)
    assert scenario is not None, report.scenario
    threshold = scenario.recipe.options.realign_threshold
    moment.require([call.offset for call in quoted.values()])
    found: list[Covered] = []
    for receipt, call in quoted.items():
        last = _read(moment, receipt, call, choice, True)
        if last.turn is None:
            continue
        likely = _likely_ancestors(moment, report, last.turn.call)
        moment.require([other.offset for other in likely.values()])
        others = [_read(moment, name, other, None, False) for name, other in likely.items()]
        turns = [each.turn for each in others if each.turn is not None]
        chain = {turn.call.receipt for turn in ancestors(last.turn, turns, realign_tokens_max=threshold)}
        found += [each for each in others if each.receipt in chain]
    return found


def _likely_ancestors(moment: SessionMoment, report: Report, last: InferenceCompleted) -> dict[Receipt, Call]:
    """Find the waiting calls whose tokens begin the prompt, by digest: one pass over the prompt."""
    state, prompt, scenario = moment.state, last.prompt_token_ids, scenario_digest(report.scenario)
    shorter: dict[Receipt, Call] = {}
    for receipt in state.routes.waiting(report.route):
        call = state.call(receipt)
        assert call is not None, receipt
        is_earlier = receipt != last.receipt and made_us(receipt) <= made_us(last.receipt)
        if is_earlier and call.scenario == scenario and not call.facts & _TAGGED:
            shorter[receipt] = call
    lengths = {branch.num_tokens * BYTES_PER_TOKEN for call in shorter.values() for branch in call.branches}
    digests = prefix_digests(prompt, [length for length in lengths if length <= len(prompt)])
    return {
        receipt: call
        for receipt, call in shorter.items()
        if any([digests.get(each.num_tokens * BYTES_PER_TOKEN) == each.digest for each in call.branches])
    }


def _read(
    moment: SessionMoment, receipt: Receipt, call: Call, choice: int | None, is_quoted: bool
) -> Covered:
    event = moment.read(call.offset, InferenceCompleted)
    return Covered(receipt, call, None) if event is None else Covered.of(event, call, choice, is_quoted)


def _choices(event: InferenceCompleted, named: int | None) -> tuple[int, ...]:
    if len(event.choices) == 1 and named in (None, event.choices[0].index):
        return (event.choices[0].index,)
    if named is None:
        return tuple([choice.index for choice in event.choices if choice.token_ids])
    chosen = choice_of(event, named)
    if chosen is None or not chosen.token_ids:
        raise RejectedError(
            f"expected metadata.choice to name one of {len(event.choices)} answers, got {named}: "
            "count from 0, or leave it out",
            reason="bad_choice",
        )
    return (named,)
