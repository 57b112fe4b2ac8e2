"""What came of a scenario, shown: a table for terminals, and a page with pictures."""
