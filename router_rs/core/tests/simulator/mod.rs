#![allow(dead_code)] // each program that has this module uses a part of it

//! A discrete-event simulation in virtual time around any system that chooses replicas.
//!
//! A [`Scenario`] (a file of `tests/scenarios/*.toml`) describes the calls and the replicas. The
//! world runs it against a [`System`]: the shipping router with one of its policies, a central
//! queue, or the rule of the seeds. One seed gives all of them the same calls at the same times
//! with the same work, and every run goes through the checkers. The result is a [`Log`].
//!
//! | module | has |
//! | --- | --- |
//! | `scenario` | what a file may say |
//! | `fields` | the lines of such a file |
//! | `phases` | how the calls of a scenario change |
//! | `traffic` | the calls that a seed gives |
//! | `executor` | how a replica spends its time |
//! | `replica` | a gate, an executor and what the replica says about itself |
//! | `world` | the events |
//! | `system` | what a system answers to |
//! | `routers` | the shipping router as a system |
//! | `desk` | one of these routers, and its checkers |
//! | `central` | one queue for all replicas, as a system |
//! | `seeds_rule` | two picks, cached lengths, sleeping backoff, as a system |
//! | `field` | rules that others use, as policies of the shipping router |
//! | `oracle` | what the best choice could find in caches |
//! | `log` | what happened, and its figures |
//! | `bars` | what must hold, by scenario |
//! | `family` | workloads, each from a seed |
//! | `steps` | a replica that steps many requests at once |
//! | `costs` | workloads for such replicas, each from a seed |
//! | `judge` | whether a rule is as good as its rivals in one of them |

mod bars;
mod central;
mod costs;
mod desk;
mod executor;
mod family;
mod field;
mod fields;
mod judge;
mod log;
mod oracle;
mod phases;
mod replica;
mod routers;
mod scenario;
mod seeds_rule;
mod steps;
mod system;
mod traffic;
mod world;

#[allow(unused_imports)]
pub(crate) use bars::{BARS, Bar, Figure, Limit, median};
#[allow(unused_imports)]
pub(crate) use costs::costs_workload;
#[allow(unused_imports)]
pub(crate) use executor::{Executor, Job};
#[allow(unused_imports)]
pub(crate) use family::workload;
#[allow(unused_imports)]
pub(crate) use field::Field;
#[allow(unused_imports)]
pub(crate) use judge::{Verdict, judge, judge_apart, minimised};
#[allow(unused_imports)]
pub(crate) use log::{End, Log, Record, mean, quantile};
#[allow(unused_imports)]
pub(crate) use oracle::shared_cache_hits;
#[allow(unused_imports)]
pub(crate) use phases::Phase;
#[allow(unused_imports)]
pub(crate) use scenario::{Executes, Scenario, Shape};
#[allow(unused_imports)]
pub(crate) use system::{Answer, Move, Rule, System};
#[allow(unused_imports)]
pub(crate) use traffic::Wants;
#[allow(unused_imports)]
pub(crate) use world::{run, run_policy, run_system};
