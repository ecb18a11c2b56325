"""Bytes in closed form, where plans would else trace a program."""
