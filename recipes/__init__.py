"""Pure: methods of learning, one folder each."""
