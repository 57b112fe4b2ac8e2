"""What a node keeps on its own disk: the journal.

The store keeps bytes and knows nothing of what they mean: whoever opens a journal
encodes and decodes its entries.
"""
