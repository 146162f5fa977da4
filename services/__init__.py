"""Complete example services, each with its own ``.proto`` beside its code. The tests run them."""
