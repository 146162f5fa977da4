//! Decides when a connection gets a PING, is given up, or is closed because it is idle.
//!
//! A pure state machine: the connection's task reports events to it and arms its timer.

use std::time::Duration;

use tokio::time::Instant;

/// When to send a PING and when to give up.
#[derive(Clone, Copy, Debug)]
pub struct KeepaliveConfig {
    /// A PING is sent when calls are in flight and nothing came for this long; `None`: never.
    pub quiet: Option<Duration>,
    /// After a PING has been unanswered for this long, other calls are kept away from the peer.
    /// Below `answer_within`.
    pub silent: Duration,
    /// How long the peer may take to send anything after a PING.
    pub answer_within: Duration,
    /// A connection without calls is closed after this time.
    pub idle: Duration,
}

impl KeepaliveConfig {
    /// Between processes of one mesh: PING after 500 ms, and idle after five minutes (design 7). A
    /// stopped replica gets nothing new after two seconds: its last bytes may have come just after
    /// the timer was set, so the PING is sent after one second at the latest, and awaited for three
    /// quarters of one. Its calls fail a little later.
    pub const MESH: Self = Self {
        quiet: Some(Duration::from_millis(500)),
        silent: Duration::from_millis(750),
        answer_within: Duration::from_millis(1500),
        idle: IDLE,
    };

    /// Within this process, where nothing can be lost.
    pub const LOCAL: Self = Self { quiet: None, ..Self::MESH };

    /// Towards any gRPC server; most of them punish PINGs more often than every five minutes, so
    /// nothing is sent unless the user asked for it.
    pub fn foreign(keepalive_time: Option<Duration>, answer_within: Duration) -> Self {
        Self { quiet: keepalive_time, silent: answer_within / 2, answer_within, idle: IDLE }
    }
}

const IDLE: Duration = Duration::from_secs(300);

/// The action that is due for the connection's task, and the time until which its timer sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Wait(Instant),
    Ping(Instant),
    /// The PING has gone unanswered for a while.
    Silent(Instant),
    Dead,
    Idle,
}

#[derive(Debug)]
pub struct Keepalive {
    config: KeepaliveConfig,
    phase: Phase,
    /// The reads that brought bytes, at the last look.
    received: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle { since: Instant },
    Busy,
    Asked,
    Silent,
}

impl Keepalive {
    pub fn new(config: KeepaliveConfig, now: Instant) -> Self {
        Self { config, phase: Phase::Idle { since: now }, received: 0 }
    }

    /// The timer is set for idleness: when a call starts, `on_busy` must be called.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle { .. })
    }

    /// A call has started; returns the new time for the timer.
    pub fn on_busy(&mut self, received: u64, now: Instant) -> Instant {
        self.phase = Phase::Busy;
        self.received = received;
        now + self.look_again()
    }

    /// The timer fired.
    pub fn on_timer(&mut self, received: u64, in_flight: u32, now: Instant) -> Verdict {
        let heard = self.received != received;
        self.received = received;
        match self.phase {
            Phase::Idle { since } if in_flight == 0 => {
                if now >= since + self.config.idle {
                    Verdict::Idle
                } else {
                    Verdict::Wait(since + self.config.idle)
                }
            }
            _ if in_flight == 0 => {
                self.phase = Phase::Idle { since: now };
                Verdict::Wait(now + self.config.idle)
            }
            Phase::Silent if !heard => Verdict::Dead,
            Phase::Asked if !heard => {
                self.phase = Phase::Silent;
                let left = self.config.answer_within.saturating_sub(self.config.silent);
                Verdict::Silent(now + left)
            }
            Phase::Busy if !heard && self.config.quiet.is_some() => {
                self.phase = Phase::Asked;
                Verdict::Ping(now + self.config.silent)
            }
            Phase::Idle { .. } | Phase::Busy | Phase::Asked | Phase::Silent => {
                self.phase = Phase::Busy;
                Verdict::Wait(now + self.look_again())
            }
        }
    }

    fn look_again(&self) -> Duration {
        self.config.quiet.unwrap_or(self.config.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_millis(500);

    fn start() -> (Keepalive, Instant) {
        let now = Instant::now();
        (Keepalive::new(KeepaliveConfig::MESH, now), now)
    }

    #[test]
    fn silence_with_calls_in_flight_asks_once_warns_and_then_gives_up() {
        let (mut keepalive, now) = start();
        assert!(keepalive.is_idle());
        assert_eq!(now + QUIET, keepalive.on_busy(7, now));
        assert!(!keepalive.is_idle());
        let at = now + QUIET;
        let silent_at = at + KeepaliveConfig::MESH.silent;
        assert_eq!(Verdict::Ping(silent_at), keepalive.on_timer(7, 1, at));
        let answer_by = at + KeepaliveConfig::MESH.answer_within;
        assert_eq!(Verdict::Silent(answer_by), keepalive.on_timer(7, 1, silent_at));
        assert_eq!(Verdict::Dead, keepalive.on_timer(7, 1, answer_by));
    }

    #[test]
    fn anything_that_comes_is_a_sign_of_life() {
        let (mut keepalive, now) = start();
        keepalive.on_busy(0, now);
        assert_eq!(Verdict::Wait(now + QUIET), keepalive.on_timer(1, 1, now));
        assert!(matches!(keepalive.on_timer(1, 1, now), Verdict::Ping(_)));
        assert_eq!(Verdict::Wait(now + QUIET), keepalive.on_timer(2, 1, now));
        assert!(matches!(keepalive.on_timer(2, 1, now), Verdict::Ping(_)));
        assert!(matches!(keepalive.on_timer(2, 1, now), Verdict::Silent(_)));
        assert_eq!(Verdict::Wait(now + QUIET), keepalive.on_timer(3, 1, now));
    }

    #[test]
    fn no_calls_for_the_idle_time_closes() {
        let (mut keepalive, now) = start();
        assert_eq!(Verdict::Wait(now + IDLE), keepalive.on_timer(0, 0, now));
        assert_eq!(Verdict::Idle, keepalive.on_timer(0, 0, now + IDLE));
        keepalive.on_busy(0, now);
        assert_eq!(Verdict::Wait(now + IDLE), keepalive.on_timer(0, 0, now));
        assert_eq!(Verdict::Idle, keepalive.on_timer(0, 0, now + IDLE));
    }

    #[test]
    fn without_keepalive_nothing_is_asked() {
        let now = Instant::now();
        let config = KeepaliveConfig::foreign(None, Duration::from_secs(20));
        let mut keepalive = Keepalive::new(config, now);
        keepalive.on_busy(0, now);
        assert_eq!(Verdict::Wait(now + IDLE), keepalive.on_timer(0, 1, now));
        assert_eq!(Verdict::Wait(now + IDLE), keepalive.on_timer(0, 1, now));
    }
}
