"""Shell: configurations that run as they stand, and users to go with them."""
