//! Unpredictable numbers.

use ring::rand::{SecureRandom, SystemRandom};

/// 64 random bits of the system.
pub fn any_u64() -> u64 {
    let mut bytes = [0; 8];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("invariant: the system has random bytes, as TLS and the handshake need them");
    u64::from_le_bytes(bytes)
}
