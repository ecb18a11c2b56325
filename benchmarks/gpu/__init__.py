"""What only a GPU can tell: `scripts/on_gpu.py` runs it, a part after the other."""
