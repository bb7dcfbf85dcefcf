"""What shows and measures an installed Towpath; nothing here is part of a distribution."""
