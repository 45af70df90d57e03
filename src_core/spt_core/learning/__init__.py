"""From tokens to a slide model: views, slide encoder, training."""
