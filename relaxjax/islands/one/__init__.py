"""One island: what it trains, sends and takes over."""

__all__: list[str] = []
