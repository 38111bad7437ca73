"""Pure: deployment: the composition root of a whole machine, and the command line."""
