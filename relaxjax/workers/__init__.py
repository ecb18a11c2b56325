"""Workers: their mesh or emulation, their state, the step they share, one model from theirs."""

__all__: list[str] = []
