"""What all commands share: errors and exit codes, names, options, devices."""
