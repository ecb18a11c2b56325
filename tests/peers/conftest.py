"""The program that imports PyTorch is no test, and is not searched for doctests."""

collect_ignore = ["ddp.py"]
