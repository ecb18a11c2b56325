"""Small floats that share a scale: microscaling, and NVIDIA's of four bits."""
