# Written by scripts/stubs.py from the table in __init__.py.

__all__ = []
