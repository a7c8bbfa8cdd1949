"""Plans: read strictly, expanded into cells, refused when undeliverable, frozen into a lock."""
