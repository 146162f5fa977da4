//! The frames that the processes of a mesh exchange.

/// The first byte says how the rest is cut.
pub fn wire(data: &[u8]) {
    if let Some((length, frames)) = data.split_first() {
        router_net::fuzzing::wire(frames, usize::from(*length) + 1);
    }
}
