"""Every transformation of optax crossed with every place that it can stand in."""
