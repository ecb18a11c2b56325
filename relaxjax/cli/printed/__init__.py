"""What commands print: tables of a terminal, and pages."""

__all__: list[str] = []
