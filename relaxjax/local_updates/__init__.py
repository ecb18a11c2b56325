"""After the optimizer: workers go their own ways and meet every few steps."""

__all__: list[str] = []
