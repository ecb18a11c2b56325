"""All workers meet, every few steps, and go on from what they agreed on."""
