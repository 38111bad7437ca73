"""Shell: a group of commands of which one needs no name: `reef topics` is `reef topics list`."""

from typing import Any, Final

from typer.core import TyperGroup

DEFAULT: Final = "list"


class ListByDefault(TyperGroup):
    """A group that lists when no command of it is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the command that was left out."""
        is_named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if is_named else [DEFAULT, *args])
