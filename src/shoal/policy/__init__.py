"""Who runs what: filter first, rank second, and say why not."""
