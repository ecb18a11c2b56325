"""Other people's programs on the same numbers: an optional group.

`python3 scripts/check.py --peers` installs PyTorch beside relaxjax and runs them.
"""
