"""Pure: stream processors: folds over the log, and the one runner that drives them."""
