"""What a program may do: the lattice, the solver, raise-only paths, contracts."""
