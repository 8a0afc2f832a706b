"""From function, signature and flags to a loaded artifact. Knows nothing of analysis."""
