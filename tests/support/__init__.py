"""What the tests share: bounded waits and a watch over processes and socket files."""
