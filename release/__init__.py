"""Pure: the release service: candidates in, a verified append-only chain out."""
