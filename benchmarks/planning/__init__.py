"""How good plans are."""
