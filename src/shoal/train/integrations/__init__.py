"""Callbacks for training loops that other libraries run: Hugging Face, Lightning."""
