"""What a machine lends and when: room that is really free, and its owner first."""
