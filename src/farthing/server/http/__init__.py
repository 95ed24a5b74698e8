"""What is HTTP about the server, not the API: limits, bodies, errors."""
