"""What a study found, in words, tables, figures and a report."""
