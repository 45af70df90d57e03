"""The "Train" dock: from a folder of slides to a model of one's own."""
