"""End to end: the real command, the real runtime, a scripted model. What a test counts is outside the product's code."""
