"""What training of slide models and of patch encoders share."""
