"""Messages of workers: arrays as they travel, one by one or in turn."""
