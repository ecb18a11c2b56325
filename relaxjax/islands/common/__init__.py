"""What all islands of a run agree on, and how it is merged."""
