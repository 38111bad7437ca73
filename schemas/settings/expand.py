"""Pure: `${VARIABLE}` inside a value, as text from the environment.

`${NAME}` must be set, `${NAME:?why}` must also not be empty, `${NAME:-text}` has a default, and `$${` is a
plain `${`. Not a shell: nothing nests, and a lone `$` is a `$`.
"""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(
    r"\$(?P<escaped>\$)\{|\$\{(?:(?P<name>[A-Za-z_]\w*)(?::(?P<mode>[-?])(?P<rest>[^}]*))?\})?"
)
_SINGLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?::\?[^}]*)?\}")


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace every reference. Raises ValueError that names the variable."""
    return _REFERENCE.sub(lambda match: _value(match, environ), text)


def has_reference(text: str) -> bool:
    """Whether expansion would change or refuse the text."""
    return _REFERENCE.search(text) is not None


def single_variable(text: str) -> str | None:
    """Name the variable when the text is one reference without a default, as secrets must be."""
    match = _SINGLE.fullmatch(text)
    return match["name"] if match else None


def escape(text: str) -> str:
    """Write a text so that expansion gives it back."""
    return text.replace("${", "$${")


def _value(match: re.Match[str], environ: Mapping[str, str]) -> str:
    if match["escaped"]:
        return "${"
    name = match["name"]
    if name is None:
        raise ValueError(
            "expected ${NAME}, ${NAME:?} or ${NAME:-default}, got another ${: write $${ for a plain ${"
        )
    value = environ.get(name)
    if match["mode"] == "-":
        return value or match["rest"]
    if value is None or (match["mode"] == "?" and not value):
        why = f" ({match['rest']})" if match["rest"] else ""
        raise ValueError(f"expected the environment variable {name} to be set{why}, got none: set it")
    return value
