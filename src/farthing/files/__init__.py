"""Reading files that nobody vouches for: positional reads, and JSON within fixed bounds."""
