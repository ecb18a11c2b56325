"""Before the optimizer: every worker comes out with the same update."""

__all__: list[str] = []
