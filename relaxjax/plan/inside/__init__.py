"""What travels inside a split model."""

__all__: list[str] = []
