"""What a model says of a slide, where it looks, and whether to believe it."""
