"""A class that answers by steps, in a real mesh."""
