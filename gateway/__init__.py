"""Pure: the gateway: what users touch. It answers, captures, and keeps; it never learns."""
