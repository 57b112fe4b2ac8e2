"""Results of machines that nobody trusts: which agree, and who is believed."""
