"""What docks share: the engine's post, settings, small widgets."""
