//! Why a deployment does not take a call, as reported to its caller.

use std::time::Duration;

use router_core::{Cost, Nanos, Refusal, Router};
use router_protocol::grpc::{Code, Status};

/// Why a call gets no replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Refused {
    QueueFull {
        limit: u32,
        crowd: Crowd,
        /// When a retry is worthwhile.
        pushback: Duration,
    },
    QueueCostFull {
        limit: Cost,
        /// The cost of the call, and of all that wait.
        cost: Cost,
        waiting: f64,
        crowd: Crowd,
        pushback: Duration,
    },
    Expired(Crowd),
    /// It would wait for most of its remaining time.
    TooLate {
        wait: Nanos,
        left: Nanos,
        crowd: Crowd,
        pushback: Duration,
    },
    /// No replica could be reached for the longest time that a call waits for it.
    Unreachable(Crowd),
    /// It has started before, and may not be retried.
    Spent,
    /// The deployment is not in the table any more.
    Removed,
    /// Its configuration wants no replica, and there is none.
    ScaledToZero,
}

/// The state of the deployment when a call got no replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crowd {
    /// Members, whatever their state.
    pub replicas: u32,
    /// Other calls.
    pub waiting: u64,
}

impl Crowd {
    pub(super) fn of(router: &Router) -> Self {
        Self { replicas: router.members(), waiting: router.waiting() }
    }

    /// The part of a sentence that says that no replica takes the call.
    fn none_is_free(self) -> String {
        match self.replicas {
            0 => "there is no replica".to_owned(),
            1 => "its replica is not free".to_owned(),
            replicas => format!("none of its {replicas} replicas is free"),
        }
    }

    fn in_numbers(self) -> String {
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let Self { replicas, waiting } = self;
        format!(
            "{replicas} replica{}, {waiting} other request{} waiting",
            plural(replicas.into()),
            plural(waiting)
        )
    }
}

impl Refused {
    /// Converts the router's refusal, and adds the time after which its callers may retry.
    pub(super) fn of(refusal: Refusal, router: &Router) -> Self {
        let pushback = Duration::from_nanos(router.pushback().0);
        let crowd = Crowd::of(router);
        match refusal {
            Refusal::QueueFull { limit } => Self::QueueFull { limit, crowd, pushback },
            Refusal::QueueCostFull { limit, cost } => {
                let waiting = router.waiting_cost();
                Self::QueueCostFull { limit, cost, waiting, crowd, pushback }
            }
            Refusal::TooLate { wait, left } => Self::TooLate { wait, left, crowd, pushback },
            Refusal::Expired => Self::Expired(crowd),
            Refusal::Spent => Self::Spent,
        }
    }

    /// Each word.
    pub(super) const WORDS: [&'static str; 7] =
        ["queue_full", "deadline", "too_late", "unreachable", "spent", "removed", "scaled_to_zero"];

    /// One word, for programs.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::QueueFull { .. } | Self::QueueCostFull { .. } => "queue_full",
            Self::Expired(_) => "deadline",
            Self::TooLate { .. } => "too_late",
            Self::Unreachable(_) => "unreachable",
            Self::Spent => "spent",
            Self::Removed => "removed",
            Self::ScaledToZero => "scaled_to_zero",
        }
    }

    /// The message for the caller: the deployment, and the limit that was reached.
    pub(super) fn status(self, application: &str, deployment: &str) -> Status {
        let name = format!("{application}/{deployment}");
        match self {
            Self::QueueFull { limit, crowd, pushback } => {
                let (free, waiting) = (crowd.none_is_free(), crowd.waiting);
                let text = format!(
                    "{name}: {free}, and {waiting} requests wait already \
                     (max_queued_requests={limit})"
                );
                Status::new(Code::ResourceExhausted, text).with_pushback(pushback)
            }
            Self::QueueCostFull { limit, cost, waiting, crowd, pushback } => {
                let (free, limit, cost) = (crowd.none_is_free(), limit.amount(), cost.amount());
                let text = format!(
                    "{name}: {free}, and requests that cost {waiting:.0} wait already: {cost:.0} more \
                     would be too much (max_queued_cost={limit})"
                );
                Status::new(Code::ResourceExhausted, text).with_pushback(pushback)
            }
            Self::TooLate { wait, left, crowd, pushback } => {
                let (free, waiting) = (crowd.none_is_free(), crowd.waiting);
                let (wait_ms, left_ms) = (wait.as_millis(), left.as_millis());
                let text = format!(
                    "{name}: {free}, and {waiting} requests wait: the call would wait for about \
                     {wait_ms} ms, too long for a deadline in {left_ms} ms"
                );
                Status::new(Code::ResourceExhausted, text).with_pushback(pushback)
            }
            Self::Expired(crowd) => {
                let crowd = crowd.in_numbers();
                let text =
                    format!("{name}: the deadline passed before a replica was free ({crowd})");
                Status::new(Code::DeadlineExceeded, text)
            }
            Self::Unreachable(crowd) => {
                let text = format!(
                    "{name}: no connection to any of its {} replicas, and nobody has started \
                     another one; look with `pyserve status` whether the controller runs",
                    crowd.replicas
                );
                Status::new(Code::Unavailable, text)
            }
            Self::Spent => {
                let limits = "max_attempts, retry_budget_percent";
                let text = format!("{name}: the call may not be sent again ({limits})");
                Status::new(Code::Unavailable, text)
            }
            Self::Removed => {
                Status::new(Code::Unavailable, format!("{name} is no longer deployed"))
            }
            Self::ScaledToZero => {
                let text = format!("{name} has no replicas, as it is configured (num_replicas=0)");
                Status::new(Code::Unavailable, text)
            }
        }
    }
}
