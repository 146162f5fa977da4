//! Memory that the two processes of one connection share, for the bytes of large bodies.
//!
//! An arena is a sealed memfd with a part for each direction. The sender copies bytes into free
//! blocks of its part and names the blocks in a frame (`router_wire`); the receiver reads them where
//! they are, and marks them as returned once nobody refers to them. The marks are in the arena
//! itself, so returning blocks needs neither a frame nor a wake-up.
//!
//! [`Space`] decides which blocks are used, and is pure. This crate and `router_py` are the only ones
//! with `unsafe` code.
//!
//! # Trust
//!
//! Both sides can write to all of the arena at any time. A peer that misuses it can change the bytes
//! of calls between these two processes, and nothing else: each connection has an arena of its own,
//! its size cannot change (it is sealed), and positions are checked. Code that checks the bytes
//! and relies on the result later must copy them first.

mod mapping;
mod marks;
mod space;

pub use mapping::{
    ARENA_BYTES_DEFAULT, ARENA_BYTES_MAX, ARENA_BYTES_MIN, Arena, Lease, Reserved, Side,
};
pub use space::{BLOCKS, Space};
