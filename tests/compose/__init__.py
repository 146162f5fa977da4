"""The mesh as containers; ``make compose`` runs what needs an engine."""
