"""Messages and items of channels to tasks."""
