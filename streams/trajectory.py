"""Pure: calls become samples: what the model read and wrote, merged by exact token prefix, each token once.

A call continues an earlier one when the earlier one's prompt and answer are how its own prompt begins. Such a
chain is one sample: what was read is masked 0, what the model wrote 1, with the logprobs it had when it was
written. What does not continue is a fork and a sample of its own; a trunk that forks share goes to the
longest. Not a tokenizer: ids are compared, text never is.

Next: schemas/events/experience.py
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np

from schemas.events import Choice, InferenceCompleted
from schemas.ids import Receipt
from schemas.packed import BYTES_PER_TOKEN, Logprobs, Mask, Temperatures, TokenIds

_PACKED = Struct("<f")
_ONE = _PACKED.pack(1.0)


class Turn(NamedTuple):
    """A call that is credited."""

    call: InferenceCompleted
    """The call, read from the log."""
    offset: int
    """Its place: the earlier one wins where two fit equally."""
    is_quoted: bool = False
    """Named by the report, hence before calls that are covered without being named."""
    choices: tuple[int, ...] = (0,)
    """Answers that may be trained, one of them; the first unless a later turn continues another."""


class Trajectory(NamedTuple):
    """One sample."""

    token_ids: TokenIds
    """What the model read and wrote, as its last call saw it."""
    loss_mask: Mask
    """1 on what it wrote."""
    logprobs: Logprobs
    """As they were when it wrote; 0.0 where masked."""
    temperatures: Temperatures
    """As they were when it wrote; 1.0 where masked."""
    num_prompt_tokens: int
    """Tokens before the first with mask 1."""
    num_realigned_tokens: int
    """Tokens it wrote that a later turn rendered otherwise."""
    turns: tuple[Turn, ...]
    """The calls merged, in the order of the tokens."""


class Assembled(NamedTuple):
    """What became of the credited calls: each is in exactly one of the two."""

    trajectories: tuple[Trajectory, ...]
    """Longest first."""
    too_long: tuple[Receipt, ...]
    """Calls that alone have more tokens than a sample may have."""


class _Branch(NamedTuple):
    """One answer of one turn; lengths in bytes."""

    turn: Turn
    choice: Choice
    kept_bytes: int
    lost_bytes: int

    @property
    def prompt_bytes(self) -> int:
        return len(self.turn.call.prompt_token_ids)


def assemble(turns: Sequence[Turn], *, sample_tokens_max: int, realign_tokens_max: int) -> Assembled:
    """Merge credited calls into samples. Every call must have an answer with a logprob for each token."""
    left = sorted(turns, key=_leaf_order) if len(turns) > 1 else list(turns)
    trajectories: list[Trajectory] = []
    too_long: list[Receipt] = []
    while left:
        last = left.pop(0)
        if _num_bytes(last) > sample_tokens_max * BYTES_PER_TOKEN:
            too_long.append(last.call.receipt)
            continue
        chain = _chain(last, left, realign_tokens_max * BYTES_PER_TOKEN)
        if len(chain) > 1:
            taken = {branch.turn.call.receipt for branch in chain}
            left = [turn for turn in left if turn.call.receipt not in taken]
        trajectories.append(_trajectory(chain))
    return Assembled(tuple(trajectories), tuple(too_long))


def ancestors(turn: Turn, others: Sequence[Turn], *, realign_tokens_max: int) -> tuple[Turn, ...]:
    """Find the calls that a call continues, first to last: one for each turn of the conversation."""
    chain = _chain(turn, others, realign_tokens_max * BYTES_PER_TOKEN)
    return tuple(branch.turn for branch in chain[:-1])


def choice_of(call: InferenceCompleted, index: int) -> Choice | None:
    """Find an answer by its index, which is nearly always its place."""
    if index < len(call.choices) and call.choices[index].index == index:
        return call.choices[index]
    return next((choice for choice in call.choices if choice.index == index), None)


def _leaf_order(turn: Turn) -> tuple[int, bool, int]:
    return (-_num_bytes(turn), not turn.is_quoted, turn.offset)


def _num_bytes(turn: Turn) -> int:
    return len(turn.call.prompt_token_ids) + len(_answer(turn, turn.choices[0]).token_ids)


def _answer(turn: Turn, index: int) -> Choice:
    choice = choice_of(turn.call, index)
    assert choice is not None, (turn.call.receipt, index)
    return choice


def _chain(leaf: Turn, others: Sequence[Turn], realign_bytes_max: int) -> list[_Branch]:
    """Walk from the last turn to the first: each link lies wholly within the prompt of the one after it."""
    answer = _answer(leaf, leaf.choices[0])
    prompt = leaf.call.prompt_token_ids
    chain = [_Branch(leaf, answer, len(prompt) + len(answer.token_ids), 0)]
    if not others:
        return chain
    fitting = [
        branch
        for turn in others
        if turn.call.tokenizer_digest == leaf.call.tokenizer_digest
        for branch in _fitting(turn, prompt, realign_bytes_max)
    ]
    limit = len(prompt)
    used = {leaf.call.receipt}
    for branch in sorted(fitting, key=_link_order):
        cut = max(0, branch.kept_bytes - limit)
        is_within = branch.kept_bytes - cut > branch.prompt_bytes
        if branch.turn.call.receipt in used or not is_within or branch.lost_bytes + cut > realign_bytes_max:
            continue
        used.add(branch.turn.call.receipt)
        chain.append(_Branch(branch.turn, branch.choice, branch.kept_bytes - cut, branch.lost_bytes + cut))
        limit = branch.prompt_bytes
    return chain[::-1]


def _link_order(branch: _Branch) -> tuple[int, int, bool, int, int]:
    turn = branch.turn
    return (-branch.kept_bytes, branch.lost_bytes, not turn.is_quoted, turn.offset, branch.choice.index)


def _fitting(turn: Turn, prompt: bytes, realign_bytes_max: int) -> list[_Branch]:
    """Give the answers of a turn that `prompt` goes on from."""
    start = len(turn.call.prompt_token_ids)
    if not prompt.startswith(turn.call.prompt_token_ids):
        return []
    found: list[_Branch] = []
    for index in turn.choices:
        choice = _answer(turn, index)
        kept = len(choice.token_ids)
        if not prompt.startswith(choice.token_ids, start):
            kept = _num_common_bytes(choice.token_ids, prompt[start : start + kept])
        lost = len(choice.token_ids) - kept
        if kept and lost <= realign_bytes_max:  # a retry keeps nothing: it continues nothing
            found.append(_Branch(turn, choice, start + kept, lost))
    return found


def _num_common_bytes(written: bytes, rendered: bytes) -> int:
    """Count the bytes of the tokens that both begin with."""
    shorter = min(len(written), len(rendered))
    left = np.frombuffer(written[:shorter], dtype="<u4")
    differing = np.flatnonzero(left != np.frombuffer(rendered[:shorter], dtype="<u4"))
    return int(differing[0]) * BYTES_PER_TOKEN if differing.size else shorter


def _trajectory(chain: Sequence[_Branch]) -> Trajectory:
    """Lay the answers over the last call's tokens; what lies between them was read."""
    last = chain[-1]
    if len(chain) == 1:
        return _of_one(last)
    mask: list[bytes] = []
    logprobs: list[bytes] = []
    temperatures: list[bytes] = []
    done = 0
    for branch in chain:
        start, end = branch.prompt_bytes, branch.kept_bytes
        num_read, num_written = (start - done) // BYTES_PER_TOKEN, (end - start) // BYTES_PER_TOKEN
        done = end
        mask += (b"\0" * num_read, b"\1" * num_written)
        logprobs += (bytes(num_read * BYTES_PER_TOKEN), branch.choice.logprobs[: end - start])
        temperature = branch.turn.call.sampling.temperature
        temperatures += (_ONE * num_read, _PACKED.pack(temperature) * num_written)
    return Trajectory(
        TokenIds(last.turn.call.prompt_token_ids + last.choice.token_ids),
        Mask(b"".join(mask)),
        Logprobs(b"".join(logprobs)),
        Temperatures(b"".join(temperatures)),
        chain[0].prompt_bytes // BYTES_PER_TOKEN,
        sum([branch.lost_bytes for branch in chain]) // BYTES_PER_TOKEN,
        tuple([branch.turn for branch in chain]),
    )


def _of_one(branch: _Branch) -> Trajectory:
    """Lay one answer over its own prompt: most calls stand alone."""
    call, choice = branch.turn.call, branch.choice
    num_read = len(call.prompt_token_ids) // BYTES_PER_TOKEN
    num_written = len(choice.token_ids) // BYTES_PER_TOKEN
    return Trajectory(
        TokenIds(call.prompt_token_ids + choice.token_ids),
        Mask(bytes(num_read) + b"\1" * num_written),
        Logprobs(bytes(num_read * BYTES_PER_TOKEN) + choice.logprobs),
        Temperatures(_ONE * num_read + _PACKED.pack(call.sampling.temperature) * num_written),
        num_read,
        0,
        (branch.turn,),
    )
