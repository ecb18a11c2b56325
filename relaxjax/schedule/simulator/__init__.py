"""Steps of several workers in simulated time, and their timelines."""

__all__: list[str] = []
