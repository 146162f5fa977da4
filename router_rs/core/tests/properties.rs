//! Random operations against a model of the rules: in any order of events, every call ends exactly
//! once, and no call waits while there is room.
//!
//! The sequences follow from one seed. A failure prints it with the smallest sequence that fails;
//! `SEED=n CASES=m cargo test --test properties` runs others.

mod property_model;

use std::cell::RefCell;
use std::env;

use property_model::{Model, Operation, OutcomeKind};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use router_core::{EjectionConfig, Nanos, PolicyKind, RouterConfig};

#[test]
fn any_sequence_of_operations_keeps_the_rules_and_ends_with_every_count_at_zero() {
    check(any_operation().boxed(), 200);
}

#[test]
fn calls_with_models_keep_the_rules() {
    let offer = (0..4_u8).prop_map(|model| Operation::Offer { deadline_ms: None, model });
    let operation = prop_oneof![
        6 => offer,
        3 => models(),
        2 => any_operation(),
    ];
    check(operation.boxed(), 150);
}

#[test]
fn a_storm_of_refusals_keeps_the_rules() {
    let operation = prop_oneof![
        4 => offer(),
        6 => any::<usize>().prop_map(|nth| Operation::Reoffer { nth, refused: true }),
        1 => any_operation(),
    ];
    check(operation.boxed(), 120);
}

#[test]
fn a_storm_of_cancels_and_membership_changes_keeps_the_rules() {
    let operation = prop_oneof![
        5 => offer(),
        3 => any::<usize>().prop_map(|nth| {
            Operation::Complete { nth, outcome: OutcomeKind::Cancelled }
        }),
        2 => any::<usize>().prop_map(|nth| Operation::Abandon { nth }),
        2 => apply(),
        1 => any_operation(),
    ];
    check(operation.boxed(), 120);
}

/// The controller is gone, so lost replicas are not replaced, and calls have no deadline.
#[test]
fn calls_to_replicas_that_are_lost_end() {
    let offer = Just(Operation::Offer { deadline_ms: None, model: 0 });
    let outcome = prop_oneof![1 => Just(OutcomeKind::Done), 2 => Just(OutcomeKind::Failed)];
    let operation = prop_oneof![
        2 => offer,
        8 => any::<usize>().prop_map(|nth| Operation::Reoffer { nth, refused: false }),
        1 => (any::<usize>(), outcome).prop_map(|(nth, outcome)| {
            Operation::Complete { nth, outcome }
        }),
        4 => (0..200_u64).prop_map(|millis| Operation::Advance { millis }),
        4 => Just(Operation::Tick),
    ];
    let reached = play(operation.boxed(), 120);
    assert!(reached.unreachable >= 10, "no call is given up: {reached:?}");
}

fn check(operation: BoxedStrategy<Operation>, operations_max: usize) {
    play(operation, operations_max).check();
}

fn play(operation: BoxedStrategy<Operation>, operations_max: usize) -> Reached {
    let seed = number_from_environment("SEED", 1);
    let config = Config {
        cases: number_from_environment("CASES", 400) as u32,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut seed_bytes = [0; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let case = (router_config(), apply(), prop::collection::vec(operation, 1..operations_max));
    let reached = RefCell::new(Reached::default());
    let result = runner.run(&case, |(config, snapshot, operations)| {
        let mut model = Model::new(config);
        model.apply(snapshot);
        for operation in operations {
            model.apply(operation);
        }
        reached.borrow_mut().add(&model);
        model.drain();
        Ok(())
    });
    if let Err(failure) = result {
        panic!("SEED={seed} repeats this: {failure}");
    }
    reached.into_inner()
}

/// How often the sequences of one test reached the states that the rules are about.
#[derive(Debug, Default)]
struct Reached {
    sent: u64,
    released: u64,
    rests: u64,
    refused_by_queue: u64,
    expired: u64,
    unreachable: u64,
    abandoned: u64,
    refusals: u64,
    faithful: u64,
    matched: u64,
}

impl Reached {
    fn add(&mut self, model: &Model) {
        let stats = model.stats();
        self.sent += stats.sent;
        self.released += model.released;
        self.rests += model.rests;
        self.refused_by_queue += stats.refused_by_queue;
        self.expired += stats.expired;
        self.unreachable += stats.unreachable;
        self.abandoned += stats.abandoned;
        self.refusals += stats.refusals;
        self.faithful += model.faithful;
        self.matched += model.matched;
    }

    /// A test whose sequences never park or never refuse would prove nothing.
    fn check(&self) {
        let Self { sent, released, rests, refused_by_queue, expired, abandoned, refusals, .. } =
            self;
        for count in [sent, released, rests, refused_by_queue, expired, abandoned, refusals] {
            assert!(*count >= 10, "the sequences miss what they are to test: {self:?}");
        }
        assert!(self.faithful.min(self.matched) >= 4, "models play no part: {self:?}");
    }
}

fn router_config() -> impl Strategy<Value = RouterConfig> {
    (0..8_u32, 0..4_u8, any::<u64>()).prop_map(|(queue_len_max, refusals_max, seed)| RouterConfig {
        queue_len_max,
        refusals_max,
        backoff_initial: Nanos::from_millis(25),
        backoff_max: Nanos::from_millis(500),
        unreachable_max: Nanos::from_millis(300),
        model_wait_max: Nanos::from_millis(100),
        promise_max: Nanos::from_millis(400),
        policy: policy_of(seed),
        // The rules know replicas that are full or avoided, not those that are ejected.
        ejection: EjectionConfig { fall: 0, ..EjectionConfig::default() },
        seed,
        ..RouterConfig::default()
    })
}

/// Most sequences are for the policy whose rules are the strictest.
fn policy_of(seed: u64) -> PolicyKind {
    match seed % 16 {
        0 => PolicyKind::Least,
        1 => PolicyKind::RoundRobin,
        2 => PolicyKind::ConsistentHash,
        3 => PolicyKind::Predicted,
        4 => PolicyKind::LateBinding,
        _ => PolicyKind::P2c,
    }
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => offer(),
        4 => (any::<usize>(), outcome()).prop_map(|(nth, outcome)| {
            Operation::Complete { nth, outcome }
        }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(nth, refused)| {
            Operation::Reoffer { nth, refused }
        }),
        1 => any::<usize>().prop_map(|nth| Operation::Abandon { nth }),
        1 => apply(),
        1 => models(),
        1 => (any::<usize>(), 0..4_u8).prop_map(|(nth, model)| Operation::Pin { nth, model }),
        3 => (0..60_u64).prop_map(|millis| Operation::Advance { millis }),
        2 => Just(Operation::Tick),
    ]
}

fn offer() -> impl Strategy<Value = Operation> {
    // Most calls name no model.
    (prop::option::of(0..120_u64), 0..8_u8).prop_map(|(deadline_ms, model)| Operation::Offer {
        deadline_ms,
        model: if model < 4 { model } else { 0 },
    })
}

fn models() -> impl Strategy<Value = Operation> {
    (any::<usize>(), prop::collection::btree_set(1..4_u8, 0..3))
        .prop_map(|(nth, models)| Operation::Models { nth, models })
}

fn outcome() -> impl Strategy<Value = OutcomeKind> {
    prop_oneof![
        4 => Just(OutcomeKind::Done),
        1 => Just(OutcomeKind::Refused),
        1 => Just(OutcomeKind::ConnectFailed),
        1 => Just(OutcomeKind::Failed),
        1 => Just(OutcomeKind::Cancelled),
    ]
}

fn apply() -> impl Strategy<Value = Operation> {
    prop::collection::btree_map(0..6_u64, 0..4_u32, 0..5)
        .prop_map(|replicas| Operation::Apply { replicas })
}

fn number_from_environment(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}
