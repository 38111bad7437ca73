"""Whatever is asked in whatever order, the chain stays a line, and every release leads to the same events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from release.chain import check_linear, merge_metadata, read_merge_metadata
from release.decisions import check_command, check_held, reason_of, rollback_target
from release.drafts import branch_prefix, next_head, promote, rollback
from release.gate import judge_base
from release.head import Evaluated, Release, decode_head, events_of, tag_of
from release.memory import Memory
from release.repository import Commit
from schemas.codec import encode
from schemas.errors import ConflictError, RejectedError
from schemas.events import (
    CandidateEvaluated,
    Operation,
    PromoteCandidate,
    ReleasePublished,
    RollBackRelease,
    SwapRequested,
    Verdict,
    VerdictReason,
)
from schemas.ids import CandidateId, CommandId, ReleaseId, derived_id
from schemas.records import Record, rejection
from schemas.topics import COMMANDS
from tests.builders import (
    SCENARIO,
    a_candidate_evaluated,
    a_promote_candidate,
    a_roll_back_release,
)
from tests.unit.release.making import BASE_URI, a_chain, a_draft, a_good_candidate, content, published

ASKS = st.lists(
    st.one_of(
        st.tuples(st.just("train"), st.integers(0, 9)),
        st.tuples(st.just("rollback"), st.integers(0, 9)),
        st.tuples(st.just("promote"), st.integers(0, 9)),
    ),
    max_size=25,
)


def carried_out(releases: list[Release], what: str, number: int) -> Release | None:
    """Decide one wish by the pure rules; None when it is refused."""
    cause = derived_id(what, str(len(releases)), str(number))
    if what == "train":
        base = releases[number % len(releases)].release_id
        if judge_base(a_good_candidate(base_release_id=base), releases):
            return None
        return published(releases, a_draft(candidate_id=CandidateId(cause), content_sha256=content(number)))
    if what == "rollback":
        command = a_roll_back_release(
            command_id=CommandId(cause), target_release_id=releases[number % len(releases)].release_id
        )
        return published(releases, rollback(command, rollback_target(command, releases)))
    held = next_head(a_draft(content_sha256=content(number)), a_chain(1), "held")
    wish = a_promote_candidate(command_id=CommandId(cause))
    return published(releases, promote(wish, held, artifact_uri="lakefs://reef-capitals/held/"))


@given(ASKS)
def test_the_chain_stays_a_line_and_a_rollback_brings_exactly_its_targets_content(
    asks: list[tuple[str, int]],
) -> None:
    releases = a_chain(1)
    for what, number in asks:
        release = carried_out(releases, what, number)
        if release is not None:
            releases.append(release)
    check_linear(releases)
    by_id = {release.release_id: release for release in releases}
    for release in releases:
        target = by_id.get(release.head.rollback_target_release_id or ReleaseId(""))
        assert (target is not None) == (release.head.operation is Operation.ROLLBACK)
        if target is not None:
            assert release.head.content_sha256 == target.head.content_sha256
            assert release.artifact_uri == target.artifact_uri


@given(st.integers(2, 6), st.data())
def test_a_chain_with_a_link_taken_out_or_doubled_is_none(length: int, data: st.DataObject) -> None:
    releases = a_chain(length)
    at = data.draw(st.integers(0, length - 2))
    for broken in (releases[:at] + releases[at + 1 :], releases[: at + 1] + releases[at:]):
        with pytest.raises(RejectedError, match="somebody else merged"):
            check_linear(broken)


@given(st.integers(1, 5))
def test_releases_lead_to_the_same_events_at_every_call(length: int) -> None:
    releases = a_chain(length)
    events = [event for release in releases for event in events_of(release)]
    assert [encode(event) for event in events] == [
        encode(event) for release in releases for event in events_of(release)
    ]
    kinds = [type(event) for event in events]
    assert kinds == [ReleasePublished] + [CandidateEvaluated, ReleasePublished, SwapRequested] * (length - 1)
    swaps = [event for event in events if isinstance(event, SwapRequested)]
    assert [swap.swap_seq for swap in swaps] == sorted({swap.swap_seq for swap in swaps})


def test_the_base_model_is_named_where_it_is_and_a_candidate_by_its_commit() -> None:
    base, trained = a_chain(2)
    assert base.artifact_uri == BASE_URI
    assert trained.artifact_uri == f"lakefs://reef-{SCENARIO}/{trained.release_id}/"
    assert tag_of(trained.seq) == "rel-000001"


@given(st.lists(st.integers(0, 11), max_size=12))
def test_only_events_that_the_log_does_not_hold_are_missing(noted: list[int]) -> None:
    releases = a_chain(4)
    events = [event for release in releases for event in events_of(release)]
    memory = Memory()
    for index in noted:
        if index < len(events):
            memory.note(events[index])
    missing = [event for release in releases for event in memory.missing(release)]
    assert missing == [event for index, event in enumerate(events) if index not in noted]


def test_the_first_verdict_counts() -> None:
    memory = Memory()
    memory.note(a_candidate_evaluated(verdict=Verdict.HELD))
    memory.note(a_candidate_evaluated(verdict=Verdict.REJECTED))
    assert set(memory.verdicts.values()) == {Verdict.HELD}


def test_a_refused_command_is_remembered_by_its_id() -> None:
    command = a_roll_back_release()
    record = Record(
        topic=COMMANDS,
        partition=0,
        offset=3,
        key=b"capitals",
        value=encode(command),
        headers=(),
        timestamp_us=1,
    )
    memory = Memory()
    memory.note(rejection(record, RejectedError("no"), "release"))
    assert memory.refused == {command.command_id}


def test_head_json_comes_back_and_no_two_attempts_are_the_same_bytes() -> None:
    releases = a_chain(1)
    one, other = (next_head(a_draft(), releases, attempt) for attempt in ("one", "other"))
    assert decode_head(one.encode()) == one
    assert one.encode() != other.encode()


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":2}', b"[]"])
def test_a_head_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RejectedError, match=r"HEAD\.json"):
        decode_head(data)


@given(
    st.dictionaries(st.text(min_size=1), st.floats(allow_nan=False, allow_infinity=False)),
    st.integers(0, 2**60),
)
def test_what_a_merge_keeps_comes_back(metrics: dict[str, float], now_us: int) -> None:
    evaluated = Evaluated(metrics=metrics, baseline_metrics={"score": 1.0})
    commit = Commit(
        commit_id="c", parent_ids=("p", "q"), metadata=merge_metadata(evaluated, now_us), created_at_s=5
    )
    assert read_merge_metadata(commit) == (now_us, evaluated)
    assert read_merge_metadata(replace(commit, metadata={})) == (5_000_000, Evaluated())


COMMAND = st.sampled_from([a_roll_back_release, a_promote_candidate])


@given(st.integers(0, 10), st.booleans(), st.booleans())
def test_a_command_is_judged_by_age_and_by_the_head_that_it_expects(
    age_s: int, names_head: bool, is_right: bool
) -> None:
    releases = a_chain(2)
    expected = releases[-1 if is_right else 0].release_id if names_head else None
    command: RollBackRelease | PromoteCandidate = a_roll_back_release(
        expected_head_release_id=expected, requested_at_us=0
    )
    if age_s > 5:
        with pytest.raises(RejectedError) as refused:
            check_command(command, releases, now_us=age_s * 1_000_000, age_s_max=5)
        assert refused.value.reason == "command_expired"
    elif names_head and not is_right:
        with pytest.raises(ConflictError) as moved:
            check_command(command, releases, now_us=age_s * 1_000_000, age_s_max=5)
        assert moved.value.reason == "head_moved"
    else:
        check_command(command, releases, now_us=age_s * 1_000_000, age_s_max=5)


def test_a_rollback_to_a_release_of_another_chain_is_refused() -> None:
    with pytest.raises(RejectedError, match="see its releases"):
        rollback_target(a_roll_back_release(target_release_id=ReleaseId("f0" * 32)), a_chain(3))


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (None, "no_such_candidate"),
        (Verdict.ACCEPTED, "not_held"),
        (Verdict.REJECTED, "not_held"),
        (Verdict.HELD, None),
    ],
)
def test_only_held_candidates_are_promoted(verdict: Verdict | None, reason: str | None) -> None:
    command = a_promote_candidate()
    verdicts = {} if verdict is None else {command.candidate_id: verdict}
    if reason is None:
        check_held(command, verdicts)
        return
    with pytest.raises((RejectedError, ConflictError)) as refused:
        check_held(command, verdicts)
    assert refused.value.reason == reason


@given(st.text(min_size=1), st.text(min_size=1))
def test_branches_of_different_commands_never_share_a_beginning(one: str, other: str) -> None:
    first = branch_prefix(Operation.ROLLBACK, one)
    assert first.startswith(branch_prefix(Operation.ROLLBACK, other)) == (one == other)
    assert set(first) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_only_refusals_about_the_candidate_become_reasons() -> None:
    assert reason_of(RejectedError("gone", reason="missing_file")) is VerdictReason.MISSING_FILE
    assert reason_of(RejectedError("broken", reason="broken_chain")) is None
