"""A model's answer for a slide, where it looks, and whether to believe it."""
