"""What becomes of ended jobs: how long they are kept, and who removes them."""
