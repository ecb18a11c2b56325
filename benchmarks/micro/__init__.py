"""One part at a time: collectives, codecs, buckets, checkpoints, overhead."""
