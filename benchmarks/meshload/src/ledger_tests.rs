//! When a change counts, and what of an update is one.

use std::time::{Duration, Instant};

use super::{Change, Ledger, View};
use crate::messages::{DeploymentKey, DeploymentView, ReplicaView, ViewPatch, WatchUpdate};

fn replica(id: &str, said: &str) -> ReplicaView {
    ReplicaView { replica_id: id.to_owned(), routing_stats_json: said.to_owned() }
}

fn key() -> DeploymentKey {
    DeploymentKey { application: "sim".to_owned(), name: "Sim".to_owned() }
}

fn whole(base_version: u64, replicas: Vec<ReplicaView>) -> WatchUpdate {
    let changed = vec![DeploymentView { key: Some(key()), replicas }];
    WatchUpdate { base_version, version: base_version + 1, changed, ..Default::default() }
}

fn patch(base_version: u64, changed: Vec<ReplicaView>, removed: &[&str]) -> WatchUpdate {
    let removed = removed.iter().map(|&id| id.to_owned()).collect();
    let patched = vec![ViewPatch { key: Some(key()), changed, removed }];
    WatchUpdate { base_version, version: base_version + 1, patched, ..Default::default() }
}

/// Apply updates to one view of a ledger in which these changes have begun; return how many have
/// arrived.
fn arrived(changes: &[Change], updates: Vec<WatchUpdate>) -> u64 {
    let begun = Instant::now();
    let mut ledger = Ledger::new(1);
    for change in changes {
        ledger.on_change(change.clone(), begun);
    }
    let mut view = View::default();
    for update in updates {
        assert!(view.apply(update, 10, &mut ledger, begun));
    }
    ledger.counted
}

#[test]
fn a_change_arrives_by_a_patch_or_a_whole_view() {
    let changes =
        [Change::Came("b".into()), Change::Went("a".into()), Change::Said("c".into(), "2".into())];
    let first = whole(0, vec![replica("a", ""), replica("c", "1")]);
    let news = vec![replica("b", ""), replica("c", "2")];
    assert_eq!(3, arrived(&changes, vec![first.clone(), patch(1, news.clone(), &["a"])]));
    assert_eq!(3, arrived(&changes, vec![first.clone(), whole(1, news)]));
    assert_eq!(0, arrived(&changes, vec![first]));
}

#[test]
fn a_change_arrives_by_a_snapshot_that_a_slow_watcher_gets() {
    let changes = [Change::Came("b".into()), Change::Went("a".into())];
    let first = whole(0, vec![replica("a", "")]);
    assert_eq!(2, arrived(&changes, vec![first.clone(), whole(0, vec![replica("b", "")])]));
    let empty = WatchUpdate { version: 1, ..Default::default() };
    assert_eq!(1, arrived(&changes, vec![first, empty]));
}

#[test]
fn the_last_watcher_ends_a_change() {
    let begun = Instant::now();
    let mut ledger = Ledger::new(2);
    ledger.on_change(Change::Came("a".into()), begun);
    for after_ms in [5, 40] {
        assert_eq!((1, 0), (ledger.pending(), ledger.counted));
        let now = begun + Duration::from_millis(after_ms);
        View::default().apply(whole(0, vec![replica("a", "")]), 10, &mut ledger, now);
    }
    assert_eq!((0, 1), (ledger.pending(), ledger.counted));
    assert_eq!(40, ledger.delay(1.0).as_millis());
}

#[test]
fn an_update_that_does_not_follow_is_refused() {
    let mut ledger = Ledger::new(1);
    let mut view = View::default();
    assert!(view.apply(whole(0, vec![]), 10, &mut ledger, Instant::now()));
    assert!(!view.apply(patch(7, vec![], &[]), 10, &mut ledger, Instant::now()));
}

#[test]
fn snapshots_are_no_updates() {
    let mut ledger = Ledger::new(1);
    let mut view = View::default();
    view.apply(whole(0, vec![replica("a", "")]), 10, &mut ledger, Instant::now());
    view.apply(patch(1, vec![replica("b", "")], &["a"]), 10, &mut ledger, Instant::now());
    assert_eq!((10, 1, 2), (ledger.bytes, ledger.updates, ledger.replicas_named));
}
