"""A study on its way: what is compared, which run is next, and how it is done."""
