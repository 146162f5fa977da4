//! Limits on what a client may cost others with its connections, frames, waits and silence.

pub(crate) mod addresses;
pub(crate) mod awake;
pub(crate) mod connection_throttle;
pub(crate) mod frames;
pub(crate) mod handshake_limiter;
pub(crate) mod idle_connections;
pub(crate) mod penalty_box;
pub(crate) mod rate_limiter;
pub(crate) mod socket_frames;
pub(crate) mod socket_rate_limiter;
pub(crate) mod stall;
pub(crate) mod suspicion;
