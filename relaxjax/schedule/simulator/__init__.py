"""Steps of several workers in simulated time, and their timelines."""
