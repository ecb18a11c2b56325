"""What all commands share: errors and exit codes, names, options, devices."""

__all__: list[str] = []
