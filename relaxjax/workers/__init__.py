"""Workers: their mesh, their state, the step they share, one model from theirs."""

__all__: list[str] = []
