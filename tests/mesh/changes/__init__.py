"""Deploys that change what runs under calls, which none of these may notice."""
