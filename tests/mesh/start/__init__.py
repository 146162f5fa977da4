"""Meshes that stay, and their processes one by one."""
