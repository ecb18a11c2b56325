"""Compiled programs, replayed on a device and a link, and as traces of others."""
