"""The command line; needs the extra `relaxjax[cli]`."""

from relaxjax.cli._app import app, main

__all__ = ["app", "main"]
