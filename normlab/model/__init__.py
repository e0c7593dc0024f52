"""The net: entries (norms, placements, mixers, inits) and the decoder that is built of them, for S lanes at once."""
