"""Relaxations and PyTorch's DDP between hosts, over links of a chosen rate."""
