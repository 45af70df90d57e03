"""Bad files, faults and attackers: each ends in a sentence."""
