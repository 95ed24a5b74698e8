"""Work offline: a file of requests, answered into a file of responses (OpenAI's batch format)."""
