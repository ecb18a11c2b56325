"""Gradients that are sent later, seldom, or only from some step on."""

__all__: list[str] = []
