"""`auto` and `auto_stream`, and what calibration measures for them."""
