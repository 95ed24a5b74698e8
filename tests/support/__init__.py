"""What several test modules share: tiny random models and measured yardsticks."""
