"""The map of slides: which are alike, and which are like no other."""
