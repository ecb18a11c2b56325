"""One island: what it trains, sends and takes over."""
