"""Processes of islands, started and watched by a command."""
