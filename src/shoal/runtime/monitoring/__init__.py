"""What people watch: events, output, metrics, warnings."""
