"""Files to start from: a compressor, a topology and a relaxation."""
