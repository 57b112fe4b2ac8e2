"""How far nodes are from each other, and how much the links between them carry."""
