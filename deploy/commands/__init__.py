"""Pure: one file a group of commands."""
