"""Pure: real dependencies as embedded programs."""
