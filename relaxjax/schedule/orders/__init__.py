"""Orders of a graph's transfers, how long a step takes in them, and bounds."""
