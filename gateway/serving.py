"""Pure: what serves right now, scenario by scenario, and which release each open answer's tokens came from.

Not the swap itself: it closes the gate, replaces `serving`, closes the spans, and opens the gate again.
"""

from dataclasses import dataclass, field
from hashlib import sha256

from schemas.events import WeightSpan
from schemas.ids import ReleaseId, ScenarioName, Sha256

UNKNOWN_SPLIT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A release that answers. A swap puts another one in its place; this one never changes."""

    release_id: ReleaseId
    """The release."""
    release_seq: int
    """Its place in the chain."""
    engine_model: str
    """The name under which engines know it."""
    tokenizer_digest: Sha256
    """Of the tokenizer that makes the ids."""
    chat_template_digest: Sha256
    """Of the template that renders prompts."""
    weights_release_id: ReleaseId | None = None
    """Another scenario's release whose weights the engines hold, below this one; None: its own."""

    @property
    def cache_salt(self) -> str:
        """What keeps the engines from using a cache that other weights filled."""
        if self.weights_release_id is None:
            return self.release_id
        return joined_salt(self.release_id, self.weights_release_id)


def joined_salt(*parts: str) -> str:
    """Give one salt for several; engines refuse long ones, and some characters in them."""
    return sha256("\n".join(parts).encode()).hexdigest()


class Spans:
    """The runs of tokens of one open answer, by release."""

    __slots__ = ("_closed", "_is_buffered", "_num_open", "_seq", "engine_model", "largest_gap_s", "last_at_s")

    def __init__(self, serving: Serving, *, is_buffered: bool) -> None:
        """Begin on the release that serves."""
        self._seq = serving.release_seq
        self._is_buffered = is_buffered
        self._closed: list[WeightSpan] = []
        self._num_open = 0
        self.engine_model = serving.engine_model
        self.last_at_s: float | None = None
        """When tokens came last; None before the first: waiting for a first token is no gap."""
        self.largest_gap_s = 0.0

    def add(self, num_tokens: int, now_s: float) -> None:
        """Count tokens of the release that serves; `now_s` is the loop's clock."""
        self._num_open += num_tokens
        self.largest_gap_s = self.gap_s(now_s)
        self.last_at_s = now_s

    def gap_s(self, now_s: float) -> float:
        """Give the largest gap between tokens, the one that is open now included."""
        open_s = 0.0 if self.last_at_s is None else now_s - self.last_at_s
        return max(self.largest_gap_s, open_s)

    def close(self, new_release_seq: int) -> None:
        """End the run: whatever arrived until now came from the old release (WEIGHTS 8)."""
        if self._is_buffered:
            self._closed.append(WeightSpan(release_seq=self._seq, num_tokens=UNKNOWN_SPLIT))
        elif self._num_open:
            self._closed.append(WeightSpan(release_seq=self._seq, num_tokens=self._num_open))
        self._seq, self._num_open = new_release_seq, 0

    def finish(self) -> tuple[WeightSpan, ...]:
        """Give all runs, in order of generation; a split that nobody can know is -1."""
        num_last = UNKNOWN_SPLIT if self._is_buffered and self._closed else self._num_open
        if num_last == 0 and self._closed:
            return tuple(self._closed)
        return (*self._closed, WeightSpan(release_seq=self._seq, num_tokens=num_last))


class OpenStreams:
    """Every answer that is being produced in one scenario, buffered ones too."""

    def __init__(self) -> None:
        """Begin with none."""
        self._open: set[Spans] = set()
        self._largest_ended_s = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def open(self, serving: Serving, *, is_buffered: bool) -> Spans:
        """Begin an answer."""
        spans = Spans(serving, is_buffered=is_buffered)
        self._open.add(spans)
        return spans

    def remove(self, spans: Spans) -> None:
        """End an answer."""
        self._open.discard(spans)
        self._largest_ended_s = max(self._largest_ended_s, spans.largest_gap_s)

    def num_on(self, engine_model: str) -> int:
        """Count the open answers that were asked of a model by this name."""
        return sum(spans.engine_model == engine_model for spans in self._open)

    def close_spans(self, new_release_seq: int) -> None:
        """Fence: tokens that arrive from here on are the new release's. Call it paused and silent."""
        for spans in self._open:
            spans.close(new_release_seq)

    def restart_gaps(self) -> None:
        """Begin measuring the largest gap of each open stream anew."""
        self._largest_ended_s = 0.0
        for spans in self._open:
            spans.largest_gap_s = 0.0

    def largest_gap_s(self, now_s: float) -> float:
        """Give the largest gap between chunks of any stream since the last restart; 0 without streams."""
        return max(self._largest_ended_s, *(spans.gap_s(now_s) for spans in self._open), 0.0)


@dataclass(slots=True, kw_only=True)
class ScenarioState:
    """A scenario as the request path sees it."""

    name: ScenarioName
    """Its name."""
    serving: Serving | None = None
    """What answers; None until the head of its chain is known."""
    first_release_id: ReleaseId | None = None
    """Release 0, which a request may name (RULINGS 19)."""
    streams: OpenStreams = field(default_factory=OpenStreams)
    """Its open answers."""
    wanted_release_id: ReleaseId | None = None
    """What it is to serve; another one than it serves while a swap is under way or failed."""
    swap_problem: str | None = None
    """Why the last swap failed; None once one succeeded."""
    is_retired: bool = False
    """Retired scenarios answer nothing new."""
