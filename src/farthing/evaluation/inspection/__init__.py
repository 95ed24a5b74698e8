"""What few bits do to a model's numbers: errors of its weights, outliers of its activations."""
