"""Orders of transfers: their quality, speed, throughput and scale."""
