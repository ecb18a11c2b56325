"""Islands and fail-stop training under the same kills, as real processes."""
