"""Results of untrusted machines: which agree, and which workers are believed."""
