"""Floor 2, stored results: files today; an object store can follow behind the same functions."""
