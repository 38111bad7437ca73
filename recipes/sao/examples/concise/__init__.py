"""Shell: an example: users who prefer brief answers, and a model that learns it from their scores."""
