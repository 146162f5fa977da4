"""The mesh of one program, in processes of its own that end with it."""
