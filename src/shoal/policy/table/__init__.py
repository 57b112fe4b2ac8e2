"""The known workers as a table, laid out for fast decisions."""
