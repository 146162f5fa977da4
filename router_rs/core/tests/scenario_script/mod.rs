//! The interpreter of scenario commands: drives a router and prints its answers.

use std::collections::BTreeMap;

use router_core::{
    Decision, Load, Nanos, Offer, Out, Outcome, PolicyKind, Refusal, Release, ReplicaId,
    ReplicaSpec, Router, RouterConfig, Ticket, Tier, WaiterId,
};

type Outputs = Result<Vec<String>, String>;

/// A router, its clock, and the names that the scenario gave to calls.
pub(crate) struct Interpreter {
    router: Router,
    now: Nanos,
    sent: BTreeMap<String, Ticket>,
    parked: BTreeMap<String, WaiterId>,
}

impl Interpreter {
    pub(crate) fn new() -> Self {
        Self {
            router: Router::new(default_config()),
            now: Nanos::ZERO,
            sent: BTreeMap::new(),
            parked: BTreeMap::new(),
        }
    }

    /// Runs one command and returns its output lines; `Err` describes an error in the command.
    pub(crate) fn run(&mut self, line: &str) -> Outputs {
        let mut words = line.split_whitespace();
        let command = words.next().ok_or("no command")?;
        let arguments: Vec<&str> = words.collect();
        let outputs = match command {
            "router" => self.configure(&arguments),
            "replicas" => self.replicas(&arguments),
            "offer" => self.offer(&arguments),
            "pin" => self.pin(&arguments),
            "models" => self.models(&arguments),
            "done" | "bad" | "failed" | "late" | "cancelled" => self.complete(command, &arguments),
            "refused" | "unreachable" => self.reoffer(command, &arguments),
            "give-up" => self.complete("refused", &arguments),
            "retry" | "retry-failed" => self.retry(command, &arguments),
            "hedge" => self.hedge(&arguments),
            "silent" | "heard" => self.silence(command, &arguments),
            "abandon" => self.abandon(&arguments),
            "advance" => self.advance(&arguments),
            "tick" => Ok(self.tick()),
            "sleep" => self.sleep(),
            "wakeup" => Ok(vec![self.wakeup()]),
            "calls" => self.calls(&arguments),
            "explain" => self.explain(&arguments),
            "load" => Ok(self.load()),
            "stats" => Ok(vec![self.stats()]),
            _ => Err(format!("unknown command {command:?}")),
        }?;
        self.check_books();
        Ok(outputs)
    }

    fn configure(&mut self, arguments: &[&str]) -> Outputs {
        let mut config = default_config();
        for argument in arguments {
            let (name, value) = argument.split_once('=').ok_or("expected name=value")?;
            match name {
                "queue" => config.queue_len_max = number(value)? as u32,
                "refusals" => config.refusals_max = number(value)? as u8,
                "backoff" => config.backoff_initial = Nanos::from_millis(number(value)?),
                "backoff_max" => config.backoff_max = Nanos::from_millis(number(value)?),
                "wait" => config.model_wait_max = Nanos::from_millis(number(value)?),
                "promise" => config.promise_max = Nanos::from_millis(number(value)?),
                "fall" => config.ejection.fall = number(value)? as u32,
                "rise" => config.ejection.rise = number(value)? as u32,
                "interval" => config.ejection.interval = Nanos::from_millis(number(value)?),
                "ejected_max" => config.ejection.ejected_percent_max = number(value)? as u8,
                "attempts" => config.retries.attempts_max = number(value)? as u8,
                "budget" => config.retries.budget_percent = number(value)? as u8,
                "hedging" => config.hedging = number(value)? == 1,
                "policy" => config.policy = policy(value)?,
                "seed" => config.seed = number(value)?,
                _ => {
                    let value = value.parse().map_err(|_| format!("{value:?} is no number"))?;
                    let set = config.set(name, value);
                    set.map_err(|_| format!("{name}={value} is no setting"))?;
                }
            }
        }
        *self = Self { router: Router::new(config), ..Self::new() };
        Ok(Vec::new())
    }

    /// `r1:2` has capacity 2, `r1:any` no limit, `r1:0` takes nothing.
    fn replicas(&mut self, arguments: &[&str]) -> Outputs {
        let mut specs = Vec::new();
        for argument in arguments {
            let (name, capacity) = argument.split_once(':').ok_or("expected replica:capacity")?;
            let capacity = if capacity == "any" { u32::MAX } else { number(capacity)? as u32 };
            specs.push(ReplicaSpec { id: replica_id(name)?, tier: Tier::Any, capacity });
        }
        let mut released = Vec::new();
        self.router.apply(&specs, self.now, &mut released);
        Ok(self.released(&released))
    }

    fn offer(&mut self, arguments: &[&str]) -> Outputs {
        let (names, settings): (Vec<&str>, Vec<&str>) =
            arguments.iter().copied().partition(|argument| !argument.contains('='));
        let mut wanted = Offer::default();
        for setting in settings {
            match setting.split_once('=') {
                Some(("deadline", ms)) => wanted.deadline = Some(Nanos::from_millis(number(ms)?)),
                Some(("model", id)) => wanted.model = id,
                Some(("session", id)) => wanted.session = id,
                _ => return Err(format!("expected deadline, model or session, not {setting}")),
            }
        }
        let mut outputs = Vec::new();
        for name in names {
            let decision = self.router.offer(wanted, self.now);
            outputs.push(self.decided(name, decision));
        }
        Ok(outputs)
    }

    /// `calls 64 each=MS`: this many calls, one after the other, each of which takes this long.
    fn calls(&mut self, arguments: &[&str]) -> Outputs {
        let [count, each] = arguments else {
            return Err("expected a number of calls and how long each takes".into());
        };
        let each = number(each.strip_prefix("each=").ok_or("expected each=MS")?)?;
        for _ in 0..number(count)? {
            let Decision::Send(assignment) = self.router.offer(Offer::default(), self.now) else {
                return Err("there is no room for a call".into());
            };
            self.now = self.now.saturating_add(Nanos::from_millis(each));
            let (ticket, mut released) = (assignment.ticket, Vec::new());
            self.router.complete(ticket, Outcome::done(None), self.now, &mut released);
        }
        Ok(vec![format!("now {}", self.now)])
    }

    /// `explain model=ID`: the router's view for such a call.
    fn explain(&self, arguments: &[&str]) -> Outputs {
        let model = arguments.first().map(|setting| setting.strip_prefix("model="));
        let model = model.map(|model| model.ok_or("expected model=ID")).transpose()?;
        let offer = Offer { model: model.unwrap_or_default(), ..Offer::default() };
        let seen = self.router.explain(&offer, self.now);
        let wait = seen.predicted_wait.map_or("unknown".into(), |wait| wait.to_string());
        let first = format!("{}; {} waiting, wait {wait}", seen.rule, seen.waiting);
        let lines = seen.replicas.iter().map(|view| {
            let why = view.out.map_or("has room".into(), out);
            let has =
                view.has_model.map_or("", |has| if has { ", has it" } else { ", has it not" });
            format!("r{}: {} of {}, {why}{has}", view.id.0, view.in_flight, view.capacity)
        });
        Ok([first].into_iter().chain(lines).collect())
    }

    /// `pin a r1 model=m`
    fn pin(&mut self, arguments: &[&str]) -> Outputs {
        let [name, replica, ..] = arguments else {
            return Err("expected a call and a replica".into());
        };
        let model = arguments.get(2).and_then(|setting| setting.strip_prefix("model="));
        let offer = Offer { model: model.unwrap_or_default(), ..Offer::default() };
        let assignment = self.router.pin(replica_id(replica)?, offer, self.now);
        Ok(vec![match assignment {
            Some(assignment) => self.decided(name, Decision::Send(assignment)),
            None => format!("{name}: no such replica"),
        }])
    }

    /// `models r1 a b`: the replica reports them.
    fn models(&mut self, arguments: &[&str]) -> Outputs {
        let (replica, ids) = arguments.split_first().ok_or("expected a replica")?;
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let mut released = Vec::new();
        self.router.models(replica_id(replica)?, &ids, self.now, &mut released);
        Ok(self.released(&released))
    }

    fn complete(&mut self, outcome: &str, arguments: &[&str]) -> Outputs {
        let (names, load) = load_of(arguments)?;
        let mut released = Vec::new();
        for name in names {
            let ticket = self.sent.remove(name).ok_or(format!("{name} is not in flight"))?;
            self.router.complete(ticket, outcome_of(outcome, load)?, self.now, &mut released);
        }
        Ok(self.released(&released))
    }

    fn reoffer(&mut self, outcome: &str, arguments: &[&str]) -> Outputs {
        let (names, load) = load_of(arguments)?;
        let mut outputs = Vec::new();
        for name in names {
            let ticket = self.sent.remove(name).ok_or(format!("{name} is not in flight"))?;
            let mut released = Vec::new();
            let outcome = outcome_of(outcome, load)?;
            let decision = self.router.reoffer(ticket, outcome, self.now, &mut released);
            outputs.extend(self.released(&released));
            outputs.push(self.decided(name, decision));
        }
        Ok(outputs)
    }

    /// `retry a pushback=MS`: it ended with a status that blames its replica; send it again.
    fn retry(&mut self, command: &str, arguments: &[&str]) -> Outputs {
        let (name, settings) = arguments.split_first().ok_or("expected a call")?;
        let pushback = settings.first().and_then(|setting| setting.strip_prefix("pushback="));
        let pushback = pushback.map(number).transpose()?.map(Nanos::from_millis);
        let ticket = self.sent.remove(*name).ok_or(format!("{name} is not in flight"))?;
        let outcome = outcome_of(if command == "retry" { "bad" } else { "failed" }, None)?;
        let mut released = Vec::new();
        let decision = self.router.retry(ticket, outcome, pushback, self.now, &mut released);
        let mut outputs = self.released(&released);
        outputs.push(self.decided(name, decision));
        Ok(outputs)
    }

    /// `hedge a b`: a second place, called b, for a.
    fn hedge(&mut self, arguments: &[&str]) -> Outputs {
        let [name, second] = arguments else {
            let after = self.router.hedge_after();
            return Ok(vec![after.map_or("never".into(), |after| format!("after {after}"))]);
        };
        let ticket = *self.sent.get(*name).ok_or(format!("{name} is not in flight"))?;
        Ok(vec![match self.router.hedge(ticket, self.now) {
            Some(assignment) => self.decided(second, Decision::Send(assignment)),
            None => format!("{name}: no second place"),
        }])
    }

    /// `silent r1`: it gives no sign of life; `heard r1`: it does again.
    fn silence(&mut self, command: &str, arguments: &[&str]) -> Outputs {
        let [replica] = arguments else {
            return Err("expected a replica".into());
        };
        let (replica, mut released) = (replica_id(replica)?, Vec::new());
        match command {
            "silent" => self.router.silent(replica, self.now, &mut released),
            _ => self.router.heard(replica, self.now, &mut released),
        }
        Ok(self.released(&released))
    }

    fn abandon(&mut self, arguments: &[&str]) -> Outputs {
        for name in arguments {
            let waiter = self.parked.remove(*name).ok_or(format!("{name} is not parked"))?;
            self.router.abandon(waiter, self.now);
        }
        Ok(Vec::new())
    }

    /// Time passes without a call of the router.
    fn advance(&mut self, arguments: &[&str]) -> Outputs {
        let [millis] = arguments else {
            return Err("expected milliseconds".into());
        };
        self.now = self.now.saturating_add(Nanos::from_millis(number(millis)?));
        Ok(Vec::new())
    }

    fn tick(&mut self) -> Vec<String> {
        let mut released = Vec::new();
        self.router.tick(self.now, &mut released);
        self.released(&released)
    }

    /// Acts as a driver does: waits for the wake-up, then ticks.
    fn sleep(&mut self) -> Outputs {
        let wakeup = self.router.next_wakeup().ok_or("the router asks for no wake-up")?;
        self.now = self.now.max(wakeup);
        let mut outputs = vec![format!("now {}", self.now)];
        outputs.extend(self.tick());
        Ok(outputs)
    }

    fn wakeup(&self) -> String {
        self.router.next_wakeup().map_or("never".into(), |at| format!("at {at}"))
    }

    fn load(&self) -> Vec<String> {
        let line = |replica: &router_core::ReplicaStats| {
            let mut facts = vec![format!("r{}: {} in flight", replica.id.0, replica.in_flight)];
            facts.extend(replica.backoff_until.map(|until| format!("left alone until {until}")));
            facts.extend(replica.ejected_until.map(|until| format!("ejected until {until}")));
            facts.extend(replica.is_silent.then(|| "silent".into()));
            let said = |load: Load| format!("reported {} of {}", load.in_flight, load.limit);
            facts.extend(replica.reported.map(said));
            let reported = self.router.models_of(replica.id);
            let promised = replica.models as usize - reported.len();
            facts.extend((!reported.is_empty()).then(|| format!("has {}", reported.join(" "))));
            facts.extend((promised > 0).then(|| format!("about to have {promised}")));
            facts.extend((!replica.is_member).then(|| "leaving".into()));
            facts.join(", ")
        };
        self.router.stats().replicas.iter().map(line).collect()
    }

    /// All counts that are not zero.
    fn stats(&self) -> String {
        let stats = self.router.stats();
        let shown = stats.counts().filter(|(_, count)| *count > 0);
        shown.map(|(name, count)| format!("{name}={count}")).collect::<Vec<_>>().join(" ")
    }

    fn decided(&mut self, name: &str, decision: Decision) -> String {
        match decision {
            Decision::Send(assignment) => {
                self.sent.insert(name.into(), assignment.ticket);
                format!("{name}: sent to r{}", assignment.replica.0)
            }
            Decision::Parked(waiter) => {
                self.parked.insert(name.into(), waiter);
                format!("{name}: parked")
            }
            Decision::Refused(Refusal::Expired) => format!("{name}: expired"),
            Decision::Refused(Refusal::Spent) => format!("{name}: may not be sent again"),
            Decision::Refused(Refusal::TooLate { wait, left }) => {
                format!("{name}: too late, {wait} to wait and {left} left")
            }
            Decision::Refused(Refusal::QueueFull { limit }) => {
                format!("{name}: queue full, at most {limit}")
            }
            Decision::Refused(Refusal::QueueCostFull { limit, .. }) => {
                format!("{name}: queue full, at most a cost of {}", limit.amount())
            }
        }
    }

    fn released(&mut self, released: &[Release]) -> Vec<String> {
        let mut outputs = Vec::new();
        for release in released {
            let (Release::Send { waiter, .. }
            | Release::Expired { waiter }
            | Release::Unreachable { waiter }) = *release;
            let found = self.parked.iter().find(|(_, parked)| **parked == waiter);
            let name = found.expect("a release names a parked call").0.clone();
            self.parked.remove(&name);
            outputs.push(match *release {
                Release::Send { assignment, .. } => self.decided(&name, Decision::Send(assignment)),
                Release::Expired { .. } => format!("{name}: expired"),
                Release::Unreachable { .. } => format!("{name}: unreachable"),
            });
        }
        outputs
    }

    /// In any scenario, the router and the script agree on where each call is.
    fn check_books(&self) {
        let stats = self.router.stats();
        let counted = (stats.in_flight, stats.parked);
        assert_eq!((self.sent.len() as u64, self.parked.len() as u64), counted);
        let refused = stats.refused_by_queue + stats.expired + stats.unreachable;
        let over = stats.completed + refused + stats.abandoned;
        assert_eq!(stats.offered, over + stats.in_flight + stats.parked);
    }
}

fn default_config() -> RouterConfig {
    RouterConfig {
        queue_len_max: 100,
        refusals_max: 3,
        backoff_initial: Nanos::from_millis(25),
        backoff_max: Nanos::from_millis(500),
        model_wait_max: Nanos::from_secs(1),
        promise_max: Nanos::from_secs(10),
        policy: PolicyKind::P2c,
        seed: 1,
        ..RouterConfig::default()
    }
}

fn out(out: Out) -> String {
    match out {
        Out::Full => "full".into(),
        Out::Busy => "busy".into(),
        Out::Backoff { until } => format!("left alone until {until}"),
        Out::Ejected { until: Some(until) } => format!("ejected until {until}"),
        Out::Ejected { until: None } => "ejected, comes back one call at a time".into(),
        Out::Silent => "silent".into(),
    }
}

fn policy(name: &str) -> Result<PolicyKind, String> {
    match name {
        "p2c" => Ok(PolicyKind::P2c),
        "consistent_hash" => Ok(PolicyKind::ConsistentHash),
        "predicted" => Ok(PolicyKind::Predicted),
        _ => Err(format!("unknown policy {name:?}")),
    }
}

fn replica_id(name: &str) -> Result<ReplicaId, String> {
    let id = name.strip_prefix('r').ok_or("replicas are named r1, r2, ...")?;
    Ok(ReplicaId(number(id)?))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text:?} is not a number: {error}"))
}

fn outcome_of(word: &str, load: Option<Load>) -> Result<Outcome, String> {
    Ok(match word {
        "done" => Outcome::done(load),
        "bad" => Outcome::Done { load, is_failure: true, first_message_at: None },
        "refused" => Outcome::Refused { load },
        "unreachable" => Outcome::ConnectFailed,
        "failed" => Outcome::Failed,
        "late" => Outcome::Late,
        "cancelled" => Outcome::Cancelled,
        _ => return Err(format!("unknown outcome {word:?}")),
    })
}

/// Splits `a b load=3/4` into names and load.
fn load_of<'a>(arguments: &[&'a str]) -> Result<(Vec<&'a str>, Option<Load>), String> {
    let mut names = Vec::new();
    let mut load = None;
    for argument in arguments {
        if let Some(value) = argument.strip_prefix("load=") {
            let (in_flight, limit) = value.split_once('/').ok_or("expected load=calls/limit")?;
            let (in_flight, limit) = (number(in_flight)? as u32, number(limit)? as u32);
            load = Some(Load {
                in_flight,
                limit,
                processing: None,
                alone: None,
                batch: None,
                cost: None,
            });
        } else {
            names.push(*argument);
        }
    }
    Ok((names, load))
}
