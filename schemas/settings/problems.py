"""Pure: what is wrong with a configuration: every mistake found, each with its place and a way out."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from schemas.errors import RejectedError

Path = tuple[str | int, ...]
"""Where a value stands: section, key, and positions below it."""
ADVICE = "every key is in docs/configuration.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake."""

    place: str
    """File and line, the environment variable, or the command line."""
    path: Path
    """The setting; empty when the file as a whole is meant."""
    message: str
    """What was expected, what came, what to do."""

    def __str__(self) -> str:
        """Say it in one line."""
        return ": ".join(part for part in (self.place, dotted(self.path), self.message) if part)


class ConfigurationError(RejectedError):
    """The configuration is refused; nothing was started. The command line exits with 2."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Carry all problems; the message has one line for each."""
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems]
        super().__init__("\n".join([*lines, f"({ADVICE})"]), reason="configuration")


def dotted(path: Path) -> str:
    """Write a path as people do: `reef.tokens[0].scopes`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Find the word that was probably meant."""
    found = get_close_matches(word, sorted(candidates), n=1, cutoff=0.6)
    return found[0] if found else None


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """Word the advice after an unknown key."""
    known = tuple(candidates)
    meant = nearest(word, known)
    return f"did you mean {meant}?" if meant else f"known are {', '.join(sorted(known))}"
