//! Calls that started and are sent again.

/// How often a call that may be repeated is sent, and how much that may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// How often one call is sent at most; 1: calls that started are not sent again.
    pub attempts_max: u8,
    /// Repetitions (and hedges) in percent of the calls offered, 0 to 100.
    pub budget_percent: u8,
}

impl Default for RetryConfig {
    /// Off; with the usual budget of a fifth when it is switched on (Finagle, Linkerd).
    fn default() -> Self {
        Self { attempts_max: 1, budget_percent: 20 }
    }
}
