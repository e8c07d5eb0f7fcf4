"""Floor 0, shapes: frozen values only, no behaviour beyond what their own fields say."""
