"""Plans and predictions in plain Python: no traced value ever enters here."""

from relaxjax.schedule._buckets import Bucket, Segment, plan_buckets, plan_groups

__all__ = ["Bucket", "Segment", "plan_buckets", "plan_groups"]
