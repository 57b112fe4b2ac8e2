"""Commands about settings, schemas and policies."""
