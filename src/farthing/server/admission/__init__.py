"""Who is let in, and when the others may come again."""
