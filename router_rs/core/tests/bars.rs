#![allow(clippy::print_stderr)] // the figures belong to the output of a failed test

//! The bars of the policies that wait in simulated time, each over the seeds 1 to 20.
//!
//! `make sim` prints the same figures for every policy, and more seeds.

mod simulator;

use router_core::PolicyKind;
use simulator::BARS;

/// The number of seeds; `SEEDS=3` is quicker during tuning, and `FIRST_SEED=21` shows whether the
/// tuning fits only these.
const SEEDS: u64 = 20;
const FIRST_SEED: u64 = 1;

/// Checks a bar that both the default and `predicted` meet.
fn check(scenario: &str) {
    check_policy(scenario, PolicyKind::LateBinding);
    check_policy(scenario, PolicyKind::Predicted);
}

/// What takes more than replicas say of themselves: how fast each is that works on several calls, how
/// full its batch is, or what other routers send.
fn check_predicted(scenario: &str) {
    check_policy(scenario, PolicyKind::Predicted);
}

fn check_policy(scenario: &str, policy: PolicyKind) {
    let bar = BARS.iter().find(|bar| bar.scenario == scenario).expect("a bar of this name");
    let (seeds, first) = (number("SEEDS", SEEDS), number("FIRST_SEED", FIRST_SEED));
    let last = first + seeds - 1;
    let figures = bar.over(policy, first..=last);
    for (figure, values) in &figures {
        eprintln!("{scenario}: {figure:?} of {values:.3?}");
    }
    let broken: Vec<String> = figures
        .iter()
        .filter(|(figure, _)| !figure.holds())
        .map(|(figure, _)| format!("{}: {:.3}, not {:?}", figure.name, figure.value, figure.limit))
        .collect();
    assert!(broken.is_empty(), "{scenario}: {broken:#?}");
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn equal_replicas_are_used_nearly_as_by_a_central_queue() {
    check("l1_equal_replicas");
}

#[test]
fn fast_replicas_get_what_they_can_do_sooner() {
    check("l2_unequal_replicas");
}

#[test]
fn a_slow_replica_is_left_alone_and_comes_back() {
    check("l3_slow_replica");
}

#[test]
fn a_replica_that_fails_fast_attracts_nothing() {
    check("l4_failing_replica");
}

#[test]
fn an_overload_is_refused_at_once_and_the_rest_is_answered_in_time() {
    check("l5_overload");
}

#[test]
fn an_overload_of_a_long_queue_is_refused_by_deadlines() {
    check("l5_long_queue");
}

#[test]
fn a_queue_of_none_leaves_no_place_free() {
    check("l5_short_queue");
}

#[test]
fn models_stay_where_they_are_loaded() {
    check("l6_models");
}

#[test]
fn a_model_that_is_too_much_for_one_replica_gets_more() {
    check("l6_models_hot");
}

#[test]
fn a_rush_for_cold_models_passes() {
    check("l6_models_cold");
}

#[test]
fn sessions_find_their_prefix_and_none_drowns_a_replica() {
    check_policy("l7_prefixes", PolicyKind::ConsistentHash);
}

#[test]
fn sessions_stay_where_they_are_while_calls_wait() {
    check_policy("l7_prefixes_full", PolicyKind::ConsistentHash);
}

#[test]
fn bursts_of_calls_do_not_part_sessions() {
    check_policy("l7_prefixes_loop", PolicyKind::ConsistentHash);
}

#[test]
fn replicas_with_popular_sessions_have_fewer_of_them() {
    check_policy("l7_prefixes_serial", PolicyKind::ConsistentHash);
}

#[test]
fn calls_find_what_replicas_report_to_keep() {
    check("caches");
}

#[test]
fn prompts_that_begin_alike_find_what_follows() {
    check("caches_alike");
}

#[test]
fn what_many_calls_want_is_kept_twice_where_calls_wait() {
    check("caches_serial");
}

#[test]
fn four_routers_keep_entries_in_the_same_places() {
    check("caches_four_routers");
}

#[test]
fn caches_that_nobody_tells_of_keep_nobody_waiting() {
    check("prefixes_unknown");
}

#[test]
fn batches_are_filled() {
    check_predicted("l8_batches");
}

#[test]
fn near_replicas_get_what_they_can_do() {
    check("l10_near_replicas");
}

#[test]
fn what_near_replicas_cannot_do_goes_farther() {
    check("l10_near_overloaded");
}

#[test]
fn what_suddenly_comes_to_near_replicas_goes_farther() {
    check("l10_near_jump");
}

#[test]
fn four_routers_do_not_run_after_each_other() {
    check_predicted("l11_four_routers");
}

#[test]
fn streams_that_stay_open_take_nothing_from_short_calls() {
    check("mixed_streams");
}

#[test]
fn long_calls_among_short_ones_keep_nobody_waiting_for_nothing() {
    check("mixed_lengths");
}

#[test]
fn equal_replicas_get_equal_shares_of_few_calls() {
    check("equal_shares");
}

#[test]
fn so_does_one_that_joins_them() {
    check("equal_shares_joined");
}

#[test]
fn eight_replicas_that_are_asked_for_all_they_can_do_do_it() {
    check("closed_loop_8");
}

#[test]
fn so_do_thirty_two() {
    check("closed_loop_32");
}

#[test]
fn a_replica_that_is_slow_by_nature_gets_what_waits_for_no_other() {
    check_predicted("six_replicas");
}
