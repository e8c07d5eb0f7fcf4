"""Floor 2, the record: the only SQL and transactions of the house."""
