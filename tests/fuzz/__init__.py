"""Random programs whose proofs the oracle tries to refute."""
