"""Re-execution: a bundle's trajectories computed anew from its plan, and held beside its records."""
