"""Unit tests of pyserve.bridge and pyserve.aio, without sockets."""
