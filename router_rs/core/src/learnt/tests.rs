//! Properties of the estimates, with replicas whose behaviour the tests know.

use super::*;

const MEAN: Nanos = Nanos::from_millis(10);

/// One replica, driven through virtual time.
struct Driven {
    pace: Pace,
    now: Nanos,
}

impl Driven {
    fn new(now: Nanos) -> Self {
        Self { pace: Pace::default(), now }
    }

    fn send(&mut self, pool: &mut Pool) -> (u32, Nanos) {
        self.pace.count(pool, self.now);
        self.pace.on_sent(pool, self.now);
        (self.pace.generation(), self.now)
    }

    fn pass(&mut self, time: Nanos) {
        self.now = self.now.saturating_add(time);
    }

    fn end(&mut self, pool: &mut Pool, (generation, sent_at): (u32, Nanos), how: Departure) {
        self.pace.count(pool, self.now);
        let latency = self.now.saturating_sub(sent_at);
        let leaving = Leaving { departure: how, latency, generation };
        self.pace.on_departure(pool, leaving, self.now);
    }

    /// Serves this many calls of `takes`, one after the other, each sent when the one before has
    /// ended.
    fn serve(&mut self, pool: &mut Pool, calls: u32, takes: Nanos) {
        for _ in 0..calls {
            let call = self.send(pool);
            self.pass(takes);
            self.end(pool, call, Departure::Answered);
        }
    }

    /// Serves this many calls at the same time, again and again.
    fn serve_together(&mut self, pool: &mut Pool, calls: usize, rounds: u32, takes: Nanos) {
        for _ in 0..rounds {
            let open: Vec<_> = (0..calls).map(|_| self.send(pool)).collect();
            for (index, call) in open.into_iter().enumerate() {
                if index == 0 {
                    self.pass(takes);
                }
                self.end(pool, call, Departure::Answered);
            }
        }
    }

    fn slowness(&self, pool: &Pool) -> f64 {
        self.pace.at(pool, self.now).slowness_at(pool, self.now)
    }

    fn level(&self, pool: &Pool) -> u32 {
        self.pace.at(pool, self.now).level()
    }
}

/// A pool that tells long-lived calls from others.
fn telling() -> Pool {
    let mut pool = Pool::default();
    pool.tell_replicas(true);
    pool
}

/// A pool that knows calls of 10 ms at one replica, which has served them.
fn known() -> (Pool, Driven) {
    let mut pool = telling();
    let mut driven = Driven::new(Nanos::ZERO);
    driven.serve(&mut pool, 200, MEAN);
    (pool, driven)
}

fn near(expected: f64, actual: f64) {
    assert!((actual / expected - 1.0).abs() < 0.1, "expected about {expected}, got {actual}");
}

#[test]
fn a_level_is_as_fast_as_calls_end_at_it() {
    let (pool, _) = known();
    near(1e-7, pool.rate(1));
    near(10e6, pool.finish_ns(1));
}

#[test]
fn calls_that_run_together_are_not_thought_to_wait_for_each_other() {
    let mut pool = telling();
    Driven::new(Nanos::ZERO).serve_together(&mut pool, 4, 200, MEAN);
    // 40 ms if they did.
    let finish_ns = pool.finish_ns(4);
    assert!((9e6..20e6).contains(&finish_ns), "{finish_ns}");
}

#[test]
fn a_replica_of_half_the_speed_is_known_by_its_pace() {
    let (mut pool, mut fast) = known();
    let mut slow = Driven::new(fast.now);
    for _ in 0..100 {
        slow.serve(&mut pool, 1, Nanos::from_millis(20));
        fast.serve(&mut pool, 2, MEAN);
    }
    near(2.0, slow.slowness(&pool) / fast.slowness(&pool));
}

#[test]
fn failures_make_a_replica_slow_sooner_if_it_has_no_good_answers() {
    let (mut pool, mut proven) = known();
    let mut fresh = Driven::new(proven.now);
    let failures_until_slow = |driven: &mut Driven, pool: &mut Pool| {
        let fail = |_: &u32| {
            let call = driven.send(pool);
            driven.end(pool, call, Departure::Failed);
            driven.slowness(pool) > 1.2
        };
        (1..100).find(fail).expect("it is slow some time")
    };
    let proven = failures_until_slow(&mut proven, &mut pool);
    let fresh = failures_until_slow(&mut fresh, &mut pool);
    assert!(fresh < proven && proven <= 20, "{fresh} {proven}");
}

/// A process imports, compiles and connects when it is first called.
#[test]
fn first_answers_that_are_slow_are_forgotten() {
    let mut pool = telling();
    let mut all = [(); 3].map(|()| Driven::new(Nanos::ZERO));
    for driven in &mut all {
        driven.serve(&mut pool, 1, Nanos::from_millis(50));
    }
    let [used, unused, _] = &mut all;
    for _ in 0..20 {
        used.serve(&mut pool, 10, Nanos::from_millis(1));
        near(1.0, unused.slowness(&pool) / used.slowness(&pool));
    }
    assert!(pool.finish_ns(1) < 2e6, "{}", pool.finish_ns(1));
    // The pool knows the usual time by now, and one answer does not prove anything.
    let mut late = Driven::new(used.now);
    late.serve(&mut pool, 1, Nanos::from_millis(50));
    near(1.0, late.slowness(&pool));
    late.serve(&mut pool, 20, Nanos::from_millis(50));
    assert!(late.slowness(&pool) > 2.0, "{}", late.slowness(&pool));
}

/// No call is answered, and the callers give up one after the other.
#[test]
fn a_replica_that_answered_nobody_stays_slow_when_all_have_left() {
    let (mut pool, mut driven) = known();
    for _ in 0..2 {
        let call = driven.send(&mut pool);
        driven.pass(Nanos::from_millis(500));
        driven.end(&mut pool, call, Departure::Other);
    }
    assert!(driven.slowness(&pool) > 2.0);
    let is_probe_due = |driven: &Driven| {
        driven.pace.at(&pool, driven.now).is_worth_a_probe(
            &pool,
            2.0,
            Nanos::from_secs(3),
            driven.now,
        )
    };
    assert!(!is_probe_due(&driven));
    driven.pass(Nanos::from_secs(3));
    assert!(is_probe_due(&driven));
}

/// Each probe of a replica that hangs becomes long-lived; the next one waits for its time all the
/// same.
#[test]
fn a_replica_that_hangs_is_tried_now_and_then() {
    let (mut pool, mut driven) = known();
    driven.send(&mut pool);
    let mut probes = 0;
    for _ in 0..3_000 {
        driven.pass(MEAN);
        let pace = driven.pace.at(&pool, driven.now);
        if pace.is_worth_a_probe(&pool, 2.0, Nanos::from_secs(3), driven.now) {
            driven.send(&mut pool);
            probes += 1;
        }
    }
    assert!((8..=10).contains(&probes), "{probes} in 30 s");
}

/// A replica that works on everything at once, with more and more calls over time: the few calls of
/// the past do not hold more of them back.
#[test]
fn what_works_on_all_at_once_is_never_busy() {
    let mut pool = telling();
    let mut driven = Driven::new(Nanos::ZERO);
    for calls in [10, 11, 12, 13, 14, 15, 16] {
        driven.serve_together(&mut pool, calls, 100, MEAN);
        assert_eq!(None, pool.useful, "at {calls}");
    }
}

/// Work on one call after the other: few calls, then suddenly many.
#[test]
fn what_works_on_one_at_a_time_is_known_by_a_jump() {
    let (mut pool, mut driven) = known();
    let mut open: Vec<_> = (0..30).map(|_| driven.send(&mut pool)).collect();
    for _ in 0..200 {
        driven.pass(MEAN);
        driven.end(&mut pool, open.remove(0), Departure::Answered);
        open.push(driven.send(&mut pool));
    }
    assert_eq!(Some(1), pool.useful);
}

#[test]
fn one_good_answer_is_enough_of_a_replica_that_was_slow_a_while_ago() {
    let (mut pool, _) = known();
    let mut slow = Driven::new(Nanos::ZERO);
    slow.serve(&mut pool, 30, Nanos::from_millis(50));
    assert!(slow.slowness(&pool) > 2.0);
    slow.serve(&mut pool, 1, MEAN);
    assert!(slow.slowness(&pool) > 2.0);
    slow.pass(Nanos::from_secs(2));
    slow.serve(&mut pool, 1, MEAN);
    near(1.0, slow.slowness(&pool));
}

/// A stream beside short calls: after a while neither the level nor the estimate counts it.
#[test]
fn a_long_lived_call_changes_nothing_of_what_is_learnt() {
    let (mut pool, mut driven) = known();
    let stream = driven.send(&mut pool);
    assert_eq!(1, driven.level(&pool));
    driven.serve(&mut pool, 200, MEAN);
    assert_eq!((0, 1), (driven.level(&pool), driven.pace.long_lived()));
    driven.serve(&mut pool, 200, MEAN);
    near(1.0, driven.slowness(&pool));
    near(10e6, pool.finish_ns(1));
    driven.pass(Nanos::from_secs(60));
    driven.end(&mut pool, stream, Departure::Answered);
    near(10e6, pool.finish_ns(1));
    near(1.0, driven.slowness(&pool));
    assert_eq!((0, 0), (driven.level(&pool), driven.pace.long_lived()));
}

/// A replica from which nothing comes gets ever slower, whether or not its calls are long-lived.
#[test]
fn a_replica_that_hangs_is_slow_until_something_ends_there() {
    let (mut pool, mut driven) = known();
    let calls = [driven.send(&mut pool), driven.send(&mut pool)];
    let mut before = driven.slowness(&pool);
    for _ in 0..5 {
        driven.pass(Nanos::from_secs(2));
        let after = driven.slowness(&pool);
        assert!(before < after, "{before} {after}");
        before = after;
    }
    assert!(driven.pace.at(&pool, driven.now).is_worth_a_probe(
        &pool,
        2.0,
        Nanos::from_secs(3),
        driven.now
    ));
    for call in calls {
        driven.end(&mut pool, call, Departure::Other);
    }
    assert_eq!(0, driven.level(&pool));
}

/// One stream that came to an idle replica: a single call that ends beside it is proof enough.
#[test]
fn a_call_that_ends_beside_a_long_lived_one_clears_the_replica() {
    let (mut pool, mut driven) = known();
    driven.send(&mut pool);
    driven.pass(Nanos::from_secs(4));
    assert!(driven.slowness(&pool) > 2.0);
    driven.serve(&mut pool, 1, MEAN);
    assert!(driven.slowness(&pool) < 1.5, "{}", driven.slowness(&pool));
    assert_eq!(0, driven.level(&pool));
}

#[test]
fn calls_that_last_long_by_nature_are_not_long_lived() {
    let mut pool = telling();
    let mut driven = Driven::new(Nanos::ZERO);
    driven.serve_together(&mut pool, 3, 50, Nanos::from_secs(60));
    let calls = [driven.send(&mut pool), driven.send(&mut pool)];
    driven.pass(Nanos::from_secs(60));
    assert_eq!(2, driven.level(&pool));
    for call in calls {
        driven.end(&mut pool, call, Departure::Answered);
    }
}

/// All calls become a hundred times longer: after a while that is their usual time.
#[test]
fn what_is_long_lived_follows_what_calls_take() {
    let (mut pool, mut driven) = known();
    driven.serve_together(&mut pool, 4, 300, Nanos::from_secs(1));
    driven.send(&mut pool);
    driven.pass(Nanos::from_secs(1));
    assert_eq!(1, driven.level(&pool));
}

#[test]
fn before_anything_has_ended_nothing_is_long_lived() {
    let mut pool = telling();
    let mut driven = Driven::new(Nanos::ZERO);
    driven.send(&mut pool);
    driven.pass(Nanos::from_secs(3600));
    assert_eq!(1, driven.level(&pool));
    // Once something has ended elsewhere, calls that are there already get their time again.
    Driven::new(Nanos::ZERO).serve(&mut pool, 100, MEAN);
    driven.pace.on_learnt(&pool, driven.now);
    driven.pass(MEAN);
    assert_eq!(1, driven.level(&pool));
    driven.pass(Nanos::from_secs(10));
    driven.serve(&mut pool, 1, MEAN);
    assert_eq!((0, 1), (driven.level(&pool), driven.pace.long_lived()));
}

#[test]
fn nothing_is_long_lived_for_who_does_not_choose_by_it() {
    let mut pool = Pool::default();
    let mut driven = Driven::new(Nanos::ZERO);
    driven.serve(&mut pool, 200, MEAN);
    let stream = driven.send(&mut pool);
    driven.pass(Nanos::from_secs(3600));
    assert_eq!((1, 0), (driven.level(&pool), driven.pace.long_lived()));
    driven.end(&mut pool, stream, Departure::Answered);
    assert_eq!(0, driven.level(&pool));
}

/// The policy changes while a stream is open: it is still given back as what it is.
#[test]
fn who_stops_to_tell_forgets_no_call() {
    let (mut pool, mut driven) = known();
    let stream = driven.send(&mut pool);
    driven.serve(&mut pool, 100, MEAN);
    assert_eq!(1, driven.pace.long_lived());
    let call = driven.send(&mut pool);
    pool.tell_replicas(false);
    driven.pace.on_learnt(&pool, driven.now);
    driven.pass(Nanos::from_secs(60));
    assert_eq!((1, 1), (driven.level(&pool), driven.pace.long_lived()));
    driven.end(&mut pool, call, Departure::Answered);
    driven.end(&mut pool, stream, Departure::Answered);
    assert_eq!((0, 0), (driven.level(&pool), driven.pace.long_lived()));
}
