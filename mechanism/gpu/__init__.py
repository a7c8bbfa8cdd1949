"""A plan for a GPU from its geometry, and the checks that settle on it what a CPU can only assume."""
