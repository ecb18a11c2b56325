"""The main job: its options checked, its loop, its checkpoints and its files."""

__all__: list[str] = []
