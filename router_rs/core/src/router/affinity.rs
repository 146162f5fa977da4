//! The choice of a replica for a call, with and without a model.
//!
//! For a call with a model, in this order: (1) a replica with room that has the model; (2) if
//! replicas have it and none of them has room, the call waits for one, until `patient_until`;
//! (3) if nobody has it, the call has waited, or one more load of it is worth it, one of the
//! replicas with room that have the fewest models. Inside a tier the policy decides. A wait for the
//! model is never the reason for a refusal: where the call cannot be parked it takes what there is.

use super::Locality;
use super::fleet::{Fleet, Query};
use super::model_directory::{Model, ModelDirectory};
use crate::cost::Cost;
use crate::membership::ReplicaId;
use crate::time::Nanos;

/// The wishes of a call besides room.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    pub(super) model: Option<Model>,
    /// Until then it waits for a replica with its model instead of making another one load it.
    pub(super) patient_until: Nanos,
    /// A hash; 0: the call has no session.
    pub(super) session: u64,
    /// For a parked call: where its session belongs, or what it names is kept.
    pub(super) home: Option<u32>,
    pub(super) locality: Locality,
    /// What it will cost; nothing where no replica reports costs.
    pub(super) cost: Cost,
    /// It names cache entries, and they decide where it goes.
    pub(super) has_keys: bool,
    /// For a parked call with keys: the replica that it waits for.
    pub(super) awaits: Option<u32>,
}

impl Wish {
    #[inline]
    pub(super) fn query<'a>(
        &self,
        tried: &'a [ReplicaId],
        ranked: &'a [ReplicaId],
        now: Nanos,
    ) -> Query<'a> {
        Query {
            now,
            session: self.session,
            locality: self.locality,
            cost: self.cost,
            waiting: 0,
            may_hold: true,
            is_placing: false,
            tried,
            ranked,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Slot(u32),
    /// Others have room, but the model is elsewhere.
    Wait,
    /// Others have room, but waiting for this one costs less than what the call finds there saves.
    WaitFor(u32),
    /// Some have room, but a better one is expected to be free sooner.
    Hold,
    /// Nobody has room.
    Nothing,
}

/// Chooses among the replicas that the call has not tried.
#[inline]
pub(super) fn choose(
    fleet: &mut Fleet,
    directory: &ModelDirectory,
    wish: Wish,
    query: Query<'_>,
) -> Choice {
    let slot = match wish.model {
        None => match fleet.pick(query) {
            None if fleet.is_holding() => return Choice::Hold,
            chosen => chosen,
        },
        Some(model) => {
            let holders = directory.holders(model);
            let held = fleet.pick_of(holders.iter().map(|holder| holder.slot), query);
            let may_wait = !holders.is_empty() && query.now < wish.patient_until;
            match held {
                None if !may_wait => choose_impatient(fleet, directory, query),
                held => match spread(fleet, directory, model, query).or(held) {
                    None => return Choice::Wait,
                    chosen => chosen,
                },
            }
        }
    };
    slot.map_or(Choice::Nothing, Choice::Slot)
}

/// Tier 3: a replica that the model's load costs least.
pub(super) fn choose_impatient(
    fleet: &mut Fleet,
    directory: &ModelDirectory,
    query: Query<'_>,
) -> Option<u32> {
    fleet.pick_cheapest(query, |slot| directory.count(slot))
}

/// A replica where the call would be answered sooner although it has to load the model, by the
/// waits that the model's last calls had at the replicas that have it. Only one replica at a time
/// loads a model that others have.
fn spread(
    fleet: &mut Fleet,
    directory: &ModelDirectory,
    model: Model,
    query: Query<'_>,
) -> Option<u32> {
    let (wait_ns, load_ns) = (directory.wait_ns(model), directory.load_ns(model)?);
    if wait_ns <= load_ns || directory.is_loading(model) {
        return None;
    }
    let slot = choose_impatient(fleet, directory, query)?;
    let holds = directory.holders(model).iter().any(|holder| holder.slot == slot);
    let is_sooner = load_ns + fleet.finish_ns(slot, query.now) < wait_ns;
    (is_sooner && !holds).then_some(slot)
}
