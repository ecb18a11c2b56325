"""Defects that others have paid for, as experiments: `docs/museum.md` shows them."""
