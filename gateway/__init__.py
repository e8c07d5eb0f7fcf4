"""Floor 3, HTTP in: the providers' callback endpoint and the callers' API. Never calls a provider, never decides."""
