"""Streams: what a strategy remembers of one source of data, and batches that hold rows of several."""
