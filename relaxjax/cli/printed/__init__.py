"""What commands print: tables of a terminal, and pages."""
