"""Pure: entries of one kind by key, small while they rest and quick while they change.

An entry that a step touches stays an object until its bytes are asked for, once a batch; then the bytes are
kept. A journal remembers what was before, so that a step that fails leaves nothing behind.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

Entry = TypeVar("Entry")


class _Undoable(Protocol):
    changed: dict[str, None]

    def restore(self, key: str, before: Any) -> None: ...


class Journal:
    """What a step changed, to be undone if it fails."""

    __slots__ = ("before",)

    def __init__(self) -> None:
        """Begin with no step."""
        self.before: list[tuple[_Undoable, str, Any]] = []
        """What stood where before each change."""

    def mark(self) -> int:
        """Name this moment of the step, to come back to."""
        return len(self.before)

    def undo(self, mark: int = 0) -> None:
        """Go back to a moment of the step."""
        while len(self.before) > mark:
            table, key, before = self.before.pop()
            table.restore(key, before)

    def keep(self) -> None:
        """End a step that succeeded: its changes are to be written."""
        for table, key, _ in self.before:
            table.changed[key] = None
        self.before.clear()


class Table(Generic[Entry]):
    """Entries of one kind."""

    __slots__ = ("_follow", "_journal", "_pack", "_unpack", "changed", "entries", "rests_packed")

    def __init__(
        self,
        journal: Journal,
        *,
        pack: Callable[[Entry], bytes],
        unpack: Callable[[str, bytes], Entry],
        follow: Callable[[str, Entry | bytes | None, Entry | bytes | None], None],
        rests_packed: bool = True,
    ) -> None:
        """Tell `follow` of each change: the key, what was there and what is, packed or not."""
        self._journal = journal
        self._pack = pack
        self._unpack = unpack
        self._follow = follow
        self.rests_packed = rests_packed
        self.entries: dict[str, Entry | bytes] = {}
        """By key; as bytes when at rest."""
        self.changed: dict[str, None] = {}
        """Keys of entries that are to be written."""

    def get(self, key: str) -> Entry | None:
        """Find an entry."""
        found = self.entries.get(key)
        return self._unpack(key, found) if type(found) is bytes else found  # type: ignore[return-value]

    def put(self, key: str, entry: Entry | None) -> None:
        """Change an entry; None removes it."""
        before = self.entries.get(key)
        self._journal.before.append((self, key, before))
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry
        self._follow(key, before, entry)

    def restore(self, key: str, before: Entry | bytes | None) -> None:
        """Undo a change."""
        self._set(key, self.entries.get(key), before)

    def load(self, key: str, data: bytes) -> None:
        """Take in an entry's bytes."""
        entry = data if self.rests_packed else self._unpack(key, data)
        self._set(key, self.entries.get(key), entry)

    def take_changes(self) -> Iterator[tuple[str, bytes | None]]:
        """Give what changed since the last call; None where an entry is gone."""
        changed, self.changed = self.changed, {}
        for key in changed:
            entry = self.entries.get(key)
            if entry is None:
                yield key, None
                continue
            data = entry if isinstance(entry, bytes) else self._pack(entry)
            if self.rests_packed:
                self.entries[key] = data
            yield key, data

    def _set(self, key: str, before: Entry | bytes | None, entry: Entry | bytes | None) -> None:
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry
        self._follow(key, before, entry)
