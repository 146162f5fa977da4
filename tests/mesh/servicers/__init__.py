"""Services of a user's own .proto behind the ingress, as clients with generated stubs see them."""
