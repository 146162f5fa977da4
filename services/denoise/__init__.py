"""Samples images of digits by diffusion; requests choose their number of steps."""
