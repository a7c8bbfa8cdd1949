"""What a bundle of many files does not keep in memory: rows, tables and names, on disk or in few bytes."""
