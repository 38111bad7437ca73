"""Pure: three kinds of error, by who can act: the sender, the operator or time, or nobody since it is done.

Anything else that is raised is a bug of ours.
"""


class ReefError(Exception):
    """An expected failure: a reason for machines, and a message: what was expected, what came, what to do."""

    def __init__(self, message: str, *, reason: str) -> None:
        """Keep the message for people and the reason for machines."""
        super().__init__(message)
        self.reason = reason


class RejectedError(ReefError):
    """This input is refused; the same input again is refused again."""

    def __init__(self, message: str, *, reason: str = "rejected") -> None:
        """Refuse an input."""
        super().__init__(message, reason=reason)


class UnavailableError(ReefError):
    """A dependency is down or too slow; the same input may succeed later."""

    def __init__(self, message: str, *, reason: str = "unavailable") -> None:
        """Ask for a retry."""
        super().__init__(message, reason=reason)


class ConflictError(ReefError):
    """What was asked is already done, or was overtaken."""

    def __init__(self, message: str, *, reason: str = "conflict") -> None:
        """Say that somebody was first."""
        super().__init__(message, reason=reason)


def words_of(error: Exception) -> str:
    """Give what an operating system's error says, without its number and its name of the file."""
    return getattr(error, "strerror", None) or str(error)
