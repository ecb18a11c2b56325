"""Plans and predictions in plain Python: no traced value ever enters here."""

__all__: list[str] = []
