"""What the DHT knows of workers: their capabilities, and where these are recorded."""
