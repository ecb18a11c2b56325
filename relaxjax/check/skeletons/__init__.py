"""Files to begin with: a compressor, a topology and a relaxation, each by itself."""

__all__: list[str] = []
