//! Why a deployment does not take a call, as its caller gets to know it.

use std::time::Duration;

use router_core::{Nanos, Refusal, Router};

/// Why a call gets no replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    QueueFull {
        limit: u32,
        /// When it is worth coming again.
        pushback: Duration,
    },
    Expired,
    /// It would wait for most of the time that it has.
    TooLate {
        wait: Nanos,
        left: Nanos,
        pushback: Duration,
    },
    /// It has started before, and may not be sent again.
    Spent,
    /// The deployment is no longer in the table.
    Removed,
}

impl Refused {
    /// What the router says, with the time after which its callers may come again.
    pub(super) fn of(refusal: Refusal, router: &Router) -> Self {
        let pushback = Duration::from_nanos(router.pushback().0);
        match refusal {
            Refusal::QueueFull { limit } => Self::QueueFull { limit, pushback },
            Refusal::TooLate { wait, left } => Self::TooLate { wait, left, pushback },
            Refusal::Expired => Self::Expired,
            Refusal::Spent => Self::Spent,
        }
    }
}
