"""What goes wrong: crashes, partitions, forgers and cheats."""
