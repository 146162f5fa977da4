//! The frames that the processes of a mesh exchange.

/// The first byte determines how the rest is split.
pub fn wire(data: &[u8]) {
    if let Some((length, frames)) = data.split_first() {
        router_net::fuzzing::wire(frames, usize::from(*length) + 1);
    }
}
