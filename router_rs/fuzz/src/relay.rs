//! The frames that ingress and replica exchange.

/// The first byte says how the rest is cut.
pub fn relay(data: &[u8]) {
    if let Some((length, frames)) = data.split_first() {
        router_net::fuzzing::relay(frames, usize::from(*length) + 1);
    }
}
