"""The HTTP server: the OpenAI API over an engine in a process of its own."""
