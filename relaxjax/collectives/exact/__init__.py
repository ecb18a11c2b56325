"""All-reduces of what workers hold, in numbers as they are."""
