"""The slide analysis dock."""
