"""The code of functions on its way: pickles, and local modules beside them."""
