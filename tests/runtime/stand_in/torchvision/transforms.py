"""No file of images is read here."""
