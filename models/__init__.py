"""What a speech model must offer, and the models."""
