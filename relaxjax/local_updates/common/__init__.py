"""Parts of all methods: local steps, outer merges, fragments, tokens, presence."""
