"""How each kind of client hears it: a package a protocol, knowing the parts and its own wire, and nothing else."""
