"""Files to start from: a compressor, a topology and a relaxation."""

__all__: list[str] = []
