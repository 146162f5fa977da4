"""An installed wheel under each CPython that it is for; ``make pythons`` runs it."""
