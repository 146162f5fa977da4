"""Version 1 of the wire contracts: ``mesh`` (Join, Watch) and ``control`` (Deploy, Status)."""
