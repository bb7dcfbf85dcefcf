"""What Towpath takes for a step: measured and reported, never asserted."""
