"""Values that stay where they were made, and the descriptors that travel instead."""
