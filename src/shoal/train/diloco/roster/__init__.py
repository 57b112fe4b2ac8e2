"""What an aggregator knows of its workers: who is awaited, and who keeps what."""
