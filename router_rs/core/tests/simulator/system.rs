//! The interface of a system: the world reports events to it and carries out the moves that it
//! appends.

use router_core::{CostLoad, LeaseRequest, Load, Nanos, PolicyKind, ReplicaId, ReplicaSpec};

use super::central::Central;
use super::field::Field;
use super::log::End;
use super::routers::Routers;
use super::scenario::Scenario;
use super::seeds_rule::SeedsRule;
use super::traffic::Wants;

/// The systems that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The shipping router with this policy.
    Router(PolicyKind),
    /// The same, which hears nothing of what calls cost.
    Counting(PolicyKind),
    /// The same, without information about models, sessions and tiers: shows what a policy gains by
    /// them.
    Blind(PolicyKind),
    /// One queue for all replicas; the next free replica takes the first call. Nothing is ever sent
    /// to a replica that is not free, and the network between takes no time.
    Central,
    /// The shipping router with a rule that others use.
    Field(Field),
    /// Power of two choices as in the seeds.
    Seeds,
    /// The replica that the session hashes to, whatever its load.
    PureHash,
}

/// How an attempt ended, as the router gets to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    Done,
    /// The application answered `RESOURCE_EXHAUSTED`.
    Failure,
    /// The gate kept it out.
    Refused,
    ConnectFailed,
    /// The replica died.
    Broken,
}

/// An action that a system requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Send {
        call: u32,
        replica: ReplicaId,
        /// The replica keeps a place for it.
        is_leased: bool,
    },
    /// The call is over.
    End { call: u32, end: End },
    /// A router asks a gate for a place, or does not any more.
    Ask { router: usize, ask: LeaseRequest, is_wanted: bool },
    /// Ask a replica how many calls it has; the answer comes as [`System::probed`].
    Probe { replica: ReplicaId, tag: u64 },
}

/// A system between the callers and the replicas.
///
/// Every call that is offered gets one [`Move::End`], unless [`System::gone`] took it back.
pub(crate) trait System {
    fn join(&mut self, specs: &[ReplicaSpec], now: Nanos, moves: &mut Vec<Move>);
    fn offer(&mut self, call: u32, wants: &Wants, now: Nanos, moves: &mut Vec<Move>);
    fn answered(
        &mut self,
        call: u32,
        answer: Answer,
        load: Option<Load>,
        now: Nanos,
        moves: &mut Vec<Move>,
    );
    /// The caller of a sent or waiting call has left, late when the call's deadline has passed.
    fn gone(&mut self, call: u32, is_late: bool, now: Nanos, moves: &mut Vec<Move>);
    /// The replica has these keys, loaded or loading.
    fn keys(&mut self, _replica: ReplicaId, _keys: &[u32], _now: Nanos, _moves: &mut Vec<Move>) {}
    /// The replica says what its requests cost.
    fn costs(
        &mut self,
        _replica: ReplicaId,
        _costs: &CostLoad,
        _now: Nanos,
        _moves: &mut Vec<Move>,
    ) {
    }
    /// Whether it asks for [`System::admitted`].
    fn wants_admissions(&self) -> bool {
        false
    }
    /// A replica let a call of `router` in, and has so many now.
    fn admitted(&mut self, _router: usize, _replica: ReplicaId, _in_flight: u32, _now: Nanos) {}
    /// A replica keeps a place for `router`.
    fn leased(&mut self, _router: usize, _replica: ReplicaId, _now: Nanos, _moves: &mut Vec<Move>) {
    }
    /// Reacts once all events of this moment have been reported.
    fn settle(&mut self, _moves: &mut Vec<Move>) {}
    fn probed(
        &mut self,
        _tag: u64,
        _replica: ReplicaId,
        _in_flight: u32,
        _now: Nanos,
        _moves: &mut Vec<Move>,
    ) {
    }
    fn next_wakeup(&self) -> Option<Nanos>;
    fn tick(&mut self, now: Nanos, moves: &mut Vec<Move>);
    /// Everything is over: its own books must say so.
    fn check_end(&self);
}

impl Rule {
    pub(crate) fn build(self, scenario: &Scenario, seed: u64) -> Box<dyn System> {
        match self {
            Self::Router(policy) => Box::new(Routers::new(scenario, policy, seed)),
            Self::Counting(policy) => Box::new(Routers::new(scenario, policy, seed).counting()),
            Self::Blind(policy) => Box::new(Routers::new(scenario, policy, seed).blind()),
            Self::Field(field) => {
                Box::new(Routers::with_field(&field.world(scenario), field, seed))
            }
            Self::Central => Box::new(Central::new(scenario)),
            Self::Seeds => Box::new(SeedsRule::new(scenario, seed)),
            Self::PureHash => Box::new(Central::pinned(scenario)),
        }
    }

    /// A central queue stands in no network.
    pub(crate) fn is_remote(self) -> bool {
        self != Self::Central
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Router(policy) => snake_case(policy),
            Self::Counting(policy) => format!("{} by count", snake_case(policy)),
            Self::Blind(policy) => format!("{} blind", snake_case(policy)),
            Self::Field(field) => field.name().to_owned(),
            Self::Central => "central queue".to_owned(),
            Self::Seeds => "seeds' rule".to_owned(),
            Self::PureHash => "pure hashing".to_owned(),
        }
    }
}

fn snake_case(policy: PolicyKind) -> String {
    let name = match policy {
        PolicyKind::P2c => "p2c",
        PolicyKind::Least => "least",
        PolicyKind::RoundRobin => "round_robin",
        PolicyKind::ConsistentHash => "consistent_hash",
        PolicyKind::Predicted => "predicted",
        PolicyKind::LateBinding => "late_binding",
    };
    name.to_owned()
}
