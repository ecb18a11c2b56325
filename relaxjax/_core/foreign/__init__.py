"""What comes from outside: bounds of the numbers that users and files give."""

__all__: list[str] = []
