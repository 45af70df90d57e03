"""What a slide encoder learns by: one objective a module, one call signature."""
