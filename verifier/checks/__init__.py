"""The checks, one module per family; `registry` lists them all in the order in which they run."""
