"""Jobs that outlive their scheduler: who keeps them, and who takes them up."""
