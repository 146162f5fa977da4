//! The Rust end of the ring.
