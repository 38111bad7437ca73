"""Shell: `make demo`: a small model learns to be brief from its users, with every part real."""
