"""What a machine lends, when and for how long."""
