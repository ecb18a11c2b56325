"""The main job: its options checked, its loop, its checkpoints and its files."""
