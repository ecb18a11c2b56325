"""Gradients that are sent later, seldom, or only from some step on."""
