"""Those who deploy: what they ask for is let in, and they are told how it goes."""
