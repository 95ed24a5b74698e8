"""A load generator for servers of the OpenAI API: what ``farthing bench serve`` does."""
