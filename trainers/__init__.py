"""Pure: trainers: batches in, candidates out, each batch exactly once."""
