"""Pure: REINFORCE with a mean baseline: the smallest method there is, and an example of adding one."""
