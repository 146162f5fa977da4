//! Whether the simulator can be believed: theory, its parts by hand, and checkers that notice.

mod simulator;

use std::fs;
use std::path::Path;

use router_core::{Load, Nanos, PolicyKind, ReplicaId, ReplicaSpec};
use simulator::{
    Answer, BARS, End, Executes, Executor, Job, Log, Move, Rule, Scenario, Shape, System, Wants,
    mean, run, run_system,
};

// === theory ===

/// Mean response over mean work, the mean over some seeds.
fn response(rule: Rule, replicas: usize, load: f64) -> f64 {
    let scenario = Scenario {
        replicas,
        load,
        limit: 0,
        shape: Shape::Exponential,
        network_ms: vec![0.0; 3],
        duration_s: 200.0 / replicas as f64,
        ..Scenario::default()
    };
    let means: Vec<f64> =
        (1..=10).map(|seed| mean(&run(&scenario, rule, seed).latencies_ms())).collect();
    mean(&means) / scenario.work_ms
}

/// Erlang's C formula gives M/M/n, `1 / (1 - load)` M/M/1.
#[test]
fn queues_are_as_long_as_theory_says() {
    fn check(expected: f64, actual: f64) {
        let error = (actual / expected - 1.0).abs();
        assert!(error < 0.05, "theory says {expected}, the simulator {actual}");
    }
    check(1.11, response(Rule::Central, 8, 0.7));
    check(1.36, response(Rule::Central, 4, 0.7));
    check(2.0, response(Rule::Router(PolicyKind::P2c), 1, 0.5));
    check(2.0, response(Rule::Seeds, 1, 0.5));
    check(2.0, response(Rule::Central, 1, 0.5));
}

// === parts ===

#[test]
fn a_step_takes_all_that_wait_once_it_is_full_or_its_window_is_over() {
    let scenario = Scenario {
        executes: Executes::Batches,
        batch_size_max: 3,
        batch_window_ms: 5.0,
        step_fixed_ms: 8.0,
        step_per_call_ms: 0.5,
        ..Scenario::default()
    };
    let mut executor = Executor::new(&scenario, 1.0);
    let mut done = Vec::new();
    add(&mut executor, 0, 0);
    add(&mut executor, 1, 2);
    assert_eq!(Some(Nanos::from_millis(5)), executor.next_wakeup());
    executor.advance(Nanos::from_millis(5), &mut done);
    // Two calls: 8 + 2 × 0.5 ms.
    assert_eq!(Some(Nanos::from_millis(14)), executor.next_wakeup());
    // Those that come meanwhile have waited long enough when it ends.
    for call in 2..6 {
        add(&mut executor, call, 6);
    }
    executor.advance(Nanos::from_millis(14), &mut done);
    assert_eq!(vec![0, 1], done.drain(..).map(|job| job.call).collect::<Vec<u32>>());
    assert_eq!(Some(Nanos::from_micros(23_500)), executor.next_wakeup());
    executor.advance(Nanos::from_micros(23_500), &mut done);
    assert_eq!(vec![2, 3, 4], done.drain(..).map(|job| job.call).collect::<Vec<u32>>());
    assert_eq!((3, 6), (executor.counts.steps, executor.counts.stepped));
}

#[test]
fn a_slowed_replica_takes_longer_for_what_it_has_begun() {
    let mut executor = Executor::new(&Scenario::default(), 2.0);
    add(&mut executor, 0, 0);
    assert_eq!(Some(Nanos::from_millis(5)), executor.next_wakeup());
    executor.slow_down(10.0, Nanos::from_millis(3));
    assert_eq!(Some(Nanos::from_millis(23)), executor.next_wakeup());
}

#[test]
fn the_least_recently_used_model_is_loaded_again() {
    let scenario = Scenario { models: 3, slots: 2, load_works: 5.0, ..Scenario::default() };
    let mut executor = Executor::new(&scenario, 1.0);
    let mut at_ms = 0;
    for (model, takes_ms) in [(0, 60), (1, 60), (0, 10), (2, 60), (0, 10), (1, 60)] {
        executor.add(job(0, at_ms, Some(model)), Nanos::from_millis(at_ms));
        at_ms += takes_ms;
        assert_eq!(Some(Nanos::from_millis(at_ms)), executor.next_wakeup(), "model {model}");
        executor.advance(Nanos::from_millis(at_ms), &mut Vec::new());
    }
    assert_eq!(Some(vec![0, 1]), executor.changed_keys());
    assert_eq!((2, 4), (executor.counts.hits, executor.counts.misses));
}

fn add(executor: &mut Executor, call: u32, at_ms: u64) {
    executor.add(job(call, at_ms, None), Nanos::from_millis(at_ms));
}

fn job(call: u32, at_ms: u64, key: Option<u32>) -> Job {
    let (entered_at, work) = (Nanos::from_millis(at_ms), Nanos::from_millis(10));
    Job { call, attempt: 1, entered_at, work, blocking: work, key, is_long: false, alone: None }
}

// === files ===

#[test]
fn every_scenario_file_has_a_bar() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<String> = fs::read_dir(folder)
        .expect("the scenario folder exists")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .collect();
    files.sort();
    let mut named: Vec<&str> = BARS.iter().map(|bar| bar.scenario).collect();
    named.sort_unstable();
    assert_eq!(files, named);
    for name in named {
        assert!(Scenario::read(name).duration_s > 0.0);
    }
}

#[test]
#[should_panic(expected = "nobody knows these fields: {\"replica\": \"3\"}")]
fn a_field_that_nobody_knows_is_refused() {
    Scenario::parse("replica = 3");
}

#[test]
#[should_panic(expected = "executes = \"twice\": unknown")]
fn a_word_that_nobody_knows_is_refused() {
    Scenario::parse("executes = \"twice\"");
}

#[test]
fn a_file_says_what_is_in_it() {
    let scenario = Scenario::parse("# a comment\nreplicas = 3 # three\nspeeds = [1, 2.5]\n");
    assert_eq!((3, vec![1.0, 2.5]), (scenario.replicas, scenario.speeds));
}

// === checkers ===

/// Sends every call to replica 0, and then does something wrong.
struct Faulty {
    fault: Fault,
}

#[derive(PartialEq)]
enum Fault {
    Nothing,
    ForgetsOne,
    EndsTwice,
    SendsWhatIsOver,
}

impl System for Faulty {
    fn join(&mut self, _specs: &[ReplicaSpec], _now: Nanos, _moves: &mut Vec<Move>) {}

    fn offer(&mut self, call: u32, _wants: &Wants, _now: Nanos, moves: &mut Vec<Move>) {
        if call != 7 || self.fault != Fault::ForgetsOne {
            moves.push(Move::Send { call, replica: ReplicaId(0), is_leased: false });
        }
    }

    fn answered(
        &mut self,
        call: u32,
        _answer: Answer,
        _load: Option<Load>,
        _now: Nanos,
        moves: &mut Vec<Move>,
    ) {
        moves.push(Move::End { call, end: End::Done });
        match self.fault {
            Fault::EndsTwice => moves.push(Move::End { call, end: End::Done }),
            Fault::SendsWhatIsOver => {
                moves.push(Move::Send { call, replica: ReplicaId(0), is_leased: false });
            }
            Fault::Nothing | Fault::ForgetsOne => {}
        }
    }

    fn gone(&mut self, _call: u32, _is_late: bool, _now: Nanos, _moves: &mut Vec<Move>) {}

    fn next_wakeup(&self) -> Option<Nanos> {
        None
    }

    fn tick(&mut self, _now: Nanos, _moves: &mut Vec<Move>) {}

    fn check_end(&self) {}
}

fn play_faulty(fault: Fault) -> Log {
    let scenario = Scenario { replicas: 1, limit: 0, duration_s: 3.0, ..Scenario::default() };
    run_system(&scenario, Box::new(Faulty { fault }), 1)
}

#[test]
fn a_system_without_a_fault_passes() {
    let log = play_faulty(Fault::Nothing);
    assert_eq!(log.records.len(), log.count(End::Done));
}

#[test]
#[should_panic(expected = "calls without an end")]
fn a_forgotten_call_is_noticed() {
    play_faulty(Fault::ForgetsOne);
}

#[test]
#[should_panic(expected = "ends twice")]
fn a_second_answer_is_noticed() {
    play_faulty(Fault::EndsTwice);
}

#[test]
#[should_panic(expected = "is sent after its end")]
fn a_call_that_is_over_cannot_be_sent() {
    play_faulty(Fault::SendsWhatIsOver);
}
