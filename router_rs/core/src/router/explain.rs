//! Explanations of the router's decisions.

use std::fmt::Write;

use super::model_directory::Model;
use super::{Offer, Router};
use crate::membership::{ReplicaId, Tier};
use crate::replica::Replica;
use crate::time::Nanos;

/// So long a line may become before the replicas that are left are only counted: clients take about
/// 8 KiB of metadata by default, and some break a call off over more.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// Of a call that brings an order, such as the answer of a policy in Python.
const RANKED_RULE: &str = "ranked: the first with room, in the order that came with the call";

/// The router's view when a call comes, and the rule by which it decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The policy, in words.
    pub rule: &'static str,
    /// Calls that are parked.
    pub waiting: u64,
    /// When a call that parks now would be sent; `None`: unknown.
    pub predicted_wait: Option<Nanos>,
    /// The members, by id.
    pub replicas: Vec<ReplicaView>,
}

/// The router's view of one member.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaView {
    /// The replica.
    pub id: ReplicaId,
    /// How far away it is.
    pub tier: Tier,
    /// Calls of this router there.
    pub in_flight: u32,
    /// Calls this router may have there.
    pub capacity: u32,
    /// Calls of other routers there, as far as it has told.
    pub others: u32,
    /// After how long one more call would be answered; `None`: no call has ended yet.
    pub predicted: Option<Nanos>,
    /// Whether it has the call's model; `None`: the call names none.
    pub has_model: Option<bool>,
    /// Why it does not come into question; `None`: it does.
    pub out: Option<Out>,
}

/// The driver's knowledge of a call.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The fate of the call.
    pub fate: Fate<'a>,
    /// The deployment that took it.
    pub deployment: &'a str,
    /// The part of the calls that goes there, where several share them; `None`: all of them.
    pub share: Option<f32>,
}

/// The fate of a call, as far as its driver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'a> {
    /// It went there.
    Sent(ReplicaId),
    /// No replica got it: one word for why.
    Refused(&'a str),
    /// Neither is known.
    Unknown,
}

/// Why a replica does not come into question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// As many calls as it takes.
    Full,
    /// It could take more calls, but they would only wait there.
    Busy,
    /// It refused, or could not be reached.
    Backoff {
        /// Until when it is left alone.
        until: Nanos,
    },
    /// It failed too often.
    Ejected {
        /// Until when; `None`: it comes back, one call at a time.
        until: Option<Nanos>,
    },
    /// It gives no sign of life.
    Silent,
}

impl Router {
    /// How many replicas the deployment has, whatever their state.
    pub fn members(&self) -> u32 {
        self.fleet.members
    }

    /// How many calls are parked, for whatever reason.
    pub fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    /// The router's view for such a call. Decides nothing. Allocates; for people.
    pub fn explain(&self, offer: &Offer<'_>, now: Nanos) -> Explanation {
        let model = self.directory.find(offer.model);
        let views = self.fleet.iter().filter(|(_, replica)| replica.is_member);
        Explanation {
            rule: if offer.ranked.is_empty() { self.fleet.rule() } else { RANKED_RULE },
            waiting: self.waiting(),
            predicted_wait: self.predicted_wait(),
            replicas: views
                .map(|(slot, replica)| ReplicaView {
                    id: replica.id,
                    tier: replica.tier,
                    in_flight: replica.in_flight,
                    capacity: replica.capacity,
                    others: replica.others(now),
                    predicted: self.fleet.predicted(slot, now),
                    has_model: (!offer.model.is_empty()).then(|| self.has_model(model, slot)),
                    out: out(replica),
                })
                .collect(),
        }
    }

    fn has_model(&self, model: Option<Model>, slot: u32) -> bool {
        let holders = model.map_or(&[][..], |model| self.directory.holders(model));
        holders.iter().any(|holder| holder.slot == slot)
    }
}

fn out(replica: &Replica) -> Option<Out> {
    if let Some(until) = replica.backoff.until() {
        return Some(Out::Backoff { until });
    }
    if replica.health.is_silent() {
        return Some(Out::Silent);
    }
    if !replica.health.takes() {
        return Some(Out::Ejected { until: replica.health.ejected_until() });
    }
    if replica.in_flight >= replica.capacity {
        return Some(Out::Full);
    }
    (!replica.is_open()).then_some(Out::Busy)
}

impl Explanation {
    /// One line of JSON. `name` says what the driver knows a replica by. Times are milliseconds;
    /// `until` counts from the router's start. Of many replicas those that no line has room for are
    /// only counted; the chosen one is always there.
    pub fn to_json(&self, told: Told<'_>, name: impl Fn(ReplicaId) -> String) -> String {
        let mut json = String::from("{\"chosen\":");
        let chosen = match told.fate {
            Fate::Sent(id) => Some(id),
            Fate::Refused(_) | Fate::Unknown => None,
        };
        match chosen {
            Some(id) => push_text(&mut json, &name(id)),
            None => json.push_str("null"),
        }
        if let Fate::Refused(why) = told.fate {
            json.push_str(",\"refused\":");
            push_text(&mut json, why);
        }
        json.push_str(",\"deployment\":");
        push_text(&mut json, told.deployment);
        if let Some(share) = told.share {
            let _infallible = write!(json, ",\"share\":{share}");
        }
        json.push_str(",\"rule\":");
        push_text(&mut json, self.rule);
        push_number(&mut json, "waiting", self.waiting);
        push_time(&mut json, "predicted_wait_ms", self.predicted_wait);
        json.push_str(",\"replicas\":[");
        let is_chosen = |view: &&ReplicaView| Some(view.id) == chosen;
        let first = self.replicas.iter().filter(is_chosen);
        let others = self.replicas.iter().filter(|view| !is_chosen(view));
        let mut shown = 0;
        for view in first.chain(others) {
            if shown > 0 && json.len() > LINE_BYTES_MAX {
                break;
            }
            json.push_str(if shown == 0 { "{\"id\":" } else { ",{\"id\":" });
            push_text(&mut json, &name(view.id));
            view.push_fields(&mut json);
            json.push('}');
            shown += 1;
        }
        json.push(']');
        if shown < self.replicas.len() {
            push_number(&mut json, "more", (self.replicas.len() - shown) as u64);
        }
        json.push('}');
        json
    }
}

impl ReplicaView {
    fn push_fields(&self, json: &mut String) {
        let tier = match self.tier {
            Tier::Node => "node",
            Tier::Zone => "zone",
            Tier::Any => "any",
        };
        json.push_str(",\"tier\":");
        push_text(json, tier);
        push_number(json, "in_flight", u64::from(self.in_flight));
        push_number(json, "capacity", u64::from(self.capacity));
        push_number(json, "others", u64::from(self.others));
        push_time(json, "predicted_ms", self.predicted);
        if let Some(has_model) = self.has_model {
            json.push_str(if has_model { ",\"has_model\":true" } else { ",\"has_model\":false" });
        }
        let Some(out) = self.out else { return };
        let (reason, until) = match out {
            Out::Full => ("full", None),
            Out::Busy => ("busy", None),
            Out::Backoff { until } => ("backoff", Some(until)),
            Out::Ejected { until } => ("ejected", until),
            Out::Silent => ("silent", None),
        };
        json.push_str(",\"out\":");
        push_text(json, reason);
        if until.is_some() {
            push_time(json, "until_ms", until);
        }
    }
}

fn push_text(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            // What a header must not have; no name needs it.
            control if control.is_control() => json.push(' '),
            other => json.push(other),
        }
    }
    json.push('"');
}

fn push_number(json: &mut String, field: &str, value: u64) {
    let _infallible = write!(json, ",\"{field}\":{value}");
}

fn push_time(json: &mut String, field: &str, time: Option<Nanos>) {
    let _infallible = match time {
        Some(time) => write!(json, ",\"{field}\":{:.3}", time.0 as f64 / 1e6),
        None => write!(json, ",\"{field}\":null"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::ReplicaSpec;
    use crate::router::{Decision, Outcome, RouterConfig};

    #[test]
    fn an_explanation_says_what_is_seen_of_each_replica_and_why_it_is_out() {
        let config = RouterConfig { policy: crate::PolicyKind::Least, ..RouterConfig::default() };
        let mut router = Router::new(config);
        let spec = |(id, capacity)| ReplicaSpec { id: ReplicaId(id), tier: Tier::Node, capacity };
        router.apply(&[(1, 1), (2, 0), (3, 4)].map(spec), Nanos::ZERO, &mut Vec::new());
        let Decision::Send(first) = router.offer(Offer::default(), Nanos::ZERO) else {
            panic!("there is room");
        };
        let other = ReplicaId(4 - first.replica.0);
        let outcome = Outcome::Refused { load: None };
        let again = router.reoffer(first.ticket, outcome, Nanos::ZERO, &mut Vec::new());
        assert!(matches!(again, Decision::Send(sent) if sent.replica == other), "{again:?}");
        let offer = Offer { model: "m", ..Offer::default() };
        let explanation = router.explain(&offer, Nanos::ZERO);
        let until = Nanos::from_millis(25);
        let seen: Vec<(u64, u32, Option<Out>)> =
            explanation.replicas.iter().map(|view| (view.id.0, view.in_flight, view.out)).collect();
        let of = |id: u64| match id {
            _ if id == first.replica.0 => (id, 0, Some(Out::Backoff { until })),
            1 => (1, 1, Some(Out::Full)),
            2 => (2, 0, Some(Out::Full)),
            _ => (id, 1, None),
        };
        assert_eq!(vec![of(1), of(2), of(3)], seen);
        let name = |id: ReplicaId| format!("r\"{}", id.0);
        let told = |fate| Told { fate, deployment: "app/Model", share: None };
        let json = explanation.to_json(told(Fate::Sent(other)), name);
        let start = format!(
            "{{\"chosen\":\"r\\\"{}\",\"deployment\":\"app/Model\",\"rule\":\"least: ",
            other.0
        );
        assert!(json.starts_with(&start), "{json}");
        let refused = Told { share: Some(0.05), ..told(Fate::Refused("queue_full")) };
        let refused = explanation.to_json(refused, name);
        let start = concat!(
            "{\"chosen\":null,\"refused\":\"queue_full\",\"deployment\":\"app/Model\",",
            "\"share\":0.05,\"rule\":"
        );
        assert!(refused.starts_with(start), "{refused}");
        let second = concat!(
            "{\"id\":\"r\\\"2\",\"tier\":\"node\",\"in_flight\":0,\"capacity\":0,\"others\":0,",
            "\"predicted_ms\":null,\"has_model\":false,\"out\":\"full\"}"
        );
        assert!(json.contains(second), "{json}");
    }

    #[test]
    fn of_many_replicas_the_line_has_the_chosen_one_and_how_many_are_left_out() {
        let mut router = Router::new(RouterConfig::default());
        let spec = |id| ReplicaSpec { id: ReplicaId(id), tier: Tier::Any, capacity: 1 };
        let specs: Vec<ReplicaSpec> = (0..1_000).map(spec).collect();
        router.apply(&specs, Nanos::ZERO, &mut Vec::new());
        assert_eq!(1_000, router.members());
        let explanation = router.explain(&Offer::default(), Nanos::ZERO);
        let told = Told { fate: Fate::Sent(ReplicaId(999)), deployment: "", share: None };
        let json = explanation.to_json(told, |id| format!("r{}", id.0));
        assert!(json.len() < LINE_BYTES_MAX + 300, "{}", json.len());
        assert!(
            json.contains("\"replicas\":[{\"id\":\"r999\",") && json.contains("{\"id\":\"r0\"")
        );
        let shown = json.matches("{\"id\":").count();
        assert!(json.ends_with(&format!("],\"more\":{}}}", 1_000 - shown)), "{json}");
    }

    #[test]
    fn the_rule_of_a_call_that_brings_an_order_is_that_order() {
        let router = Router::new(RouterConfig::default());
        let rule = |ranked| router.explain(&Offer { ranked, ..Offer::default() }, Nanos::ZERO).rule;
        assert_eq!(RANKED_RULE, rule(&[ReplicaId(1)]));
        assert_ne!(RANKED_RULE, rule(&[]));
    }
}
