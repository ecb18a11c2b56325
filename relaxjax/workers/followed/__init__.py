"""Traced transformations and steps, followed before they are trusted."""
