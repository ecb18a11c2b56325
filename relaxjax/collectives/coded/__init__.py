"""All-reduces of payloads, which adding workers open and encode again."""
