"""Floor 1, providers as data: contracts, verification, mapping, requests, interpretation. Pure."""
