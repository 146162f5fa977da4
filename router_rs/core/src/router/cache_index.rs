//! Tracks which replica has which cache entries, as far as this router knows: prefix blocks of
//! prompts, sessions, encodings, adapters, feature rows.
//!
//! An entry is known by a key of 64 bits. One that was stored after a *parent* is a block of a chain:
//! it is found only where the block before it is found too, and where the call names that block right
//! before it. Any other entry stands alone.
//!
//! What replicas report is known until they report otherwise. What this router has just sent a call
//! for is a *promise*: the replica is assumed to have it until a report confirms it or the promise
//! ends, so that a burst of calls for a new key goes to one replica. Further calls do not prolong a
//! promise, and the answer of a call shortens it: keys that replicas never store would otherwise
//! hold all calls that name them at one replica.
//!
//! The index is bounded in keys and in bytes. Beyond that the keys that were used longest ago leave;
//! of a chain the last block is the first to leave. Forgetting a key costs a call its hit, never its
//! answer.

use std::hash::{BuildHasher, Hasher};

use crate::rng::mix;
use crate::time::Nanos;

/// No node: an end of the list of recent use.
const NONE: u32 = u32::MAX;
/// What a key costs beside its holders: its node, and its entry in the table, which is on average
/// three quarters full.
const KEY_BYTES: usize = size_of::<Node>() + 24;
const HOLDER_BYTES: usize = size_of::<Holder>();

/// The bounds of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheBounds {
    pub(super) keys_max: usize,
    pub(super) bytes_max: usize,
}

/// One change that a replica reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// The entry is there.
    Stored {
        /// Which entry.
        key: u64,
        /// The block before it in its chain; 0: it stands alone.
        parent: u64,
    },
    /// It is not there any more.
    Removed {
        /// Which entry.
        key: u64,
    },
}

/// The keys that a call would find, by slot.
///
/// Kept between calls for its memory; `found[slot]` is valid if `asked[slot]` is the present call's
/// number.
#[derive(Debug, Default)]
struct Finds {
    call: u64,
    of_slot: Vec<Find>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Find {
    call: u64,
    /// Keys that the call would find.
    count: u32,
    /// One more than the position of the last of them.
    last: u32,
}

/// See the module.
///
/// Invariants: `nodes[places[key]].key == key`; every node in `places` is in the list of recent use
/// and has a holder entry, valid or not; `holders` counts all entries; the bounds hold between calls.
#[derive(Debug)]
pub(super) struct CacheIndex {
    bounds: CacheBounds,
    places: Places,
    nodes: Vec<Node>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    holders: usize,
    slots: Vec<SlotBook>,
    finds: Finds,
    /// Keys that left because of the bounds.
    pub(super) forgotten: u64,
}

#[derive(Debug)]
struct Node {
    key: u64,
    parent: u64,
    newer: u32,
    older: u32,
    used_at: Nanos,
    holders: Vec<Holder>,
}

/// That a replica has a key. It counts while its generation is that of the slot, and until its time.
#[derive(Clone, Copy, Debug)]
struct Holder {
    slot: u32,
    generation: u32,
    /// When a promise ends; [`Nanos::MAX`]: the replica has reported the key.
    until: Nanos,
}

/// The state of one replica's cache as a whole.
#[derive(Clone, Copy, Debug, Default)]
struct SlotBook {
    /// Counts its whole states: holders of an earlier one are not there any more.
    generation: u32,
    /// Keys that it has reported.
    reported: u32,
    /// For how long keys were not used that it removed; a mean. 0: it has removed none.
    idle_ns: f64,
}

/// Of one removal in the mean time for which removed keys were not used. Arbitrary: of some dozen.
const IDLE_WEIGHT: f64 = 1.0 / 32.0;

// === impl CacheIndex: what replicas say ===

impl CacheIndex {
    /// `seed` spreads keys in the table, so that clients cannot choose keys that meet there.
    pub(super) fn new(bounds: CacheBounds, seed: u64) -> Self {
        Self {
            bounds,
            places: Places::with_hasher(Spread(mix(seed))),
            nodes: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            holders: 0,
            slots: Vec::new(),
            finds: Finds::default(),
            forgotten: 0,
        }
    }

    /// The replica in `slot` has nothing any more, or is another one, or is about to report its whole
    /// state.
    pub(super) fn clear(&mut self, slot: u32) {
        let book = self.book(slot);
        *book = SlotBook { generation: book.generation.wrapping_add(1), ..SlotBook::default() };
    }

    /// The replica in `slot` reports a change.
    pub(super) fn apply(&mut self, slot: u32, change: CacheChange, now: Nanos) {
        match change {
            CacheChange::Stored { key, parent } => self.store(slot, (key, parent), Nanos::MAX, now),
            CacheChange::Removed { key } => self.remove(slot, key, now),
        }
    }

    /// A call that names `keys` goes to `slot`, which is assumed to have them until `until`.
    pub(super) fn promise(&mut self, slot: u32, keys: &[u64], until: Nanos, now: Nanos) {
        // From the last one on, so that the first blocks of a chain are the last to be forgotten.
        for key in keys.iter().rev() {
            let place = self.places.get(key).copied();
            let parent = place.map_or(0, |place| self.nodes[place as usize].parent);
            self.store(slot, (*key, parent), until, now);
        }
    }

    /// A call that named `keys` has ended at `slot`: its promises end by `until`, because what the
    /// replica has stored for it is reported by then.
    pub(super) fn shorten(&mut self, slot: u32, keys: &[u64], until: Nanos) {
        let generation = self.book(slot).generation;
        for key in keys {
            let Some(place) = self.places.get(key).copied() else { continue };
            let holders = self.nodes[place as usize].holders.iter_mut();
            for holder in holders.filter(|holder| holder.slot == slot) {
                if !holder.is_reported(generation) {
                    holder.until = holder.until.min(until);
                }
            }
        }
    }

    fn store(&mut self, slot: u32, (key, parent): (u64, u64), until: Nanos, now: Nanos) {
        let generation = self.book(slot).generation;
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => self.add_node(key),
        };
        self.move_to_front(place);
        let node = &mut self.nodes[place as usize];
        node.used_at = now;
        node.parent = parent;
        let known = node.holders.iter_mut().find(|holder| holder.slot == slot);
        let was_reported = known.as_ref().is_some_and(|holder| holder.is_reported(generation));
        match known {
            // A promise takes nothing from what was reported, and is not prolonged.
            Some(_) if was_reported => {}
            Some(holder) if until != Nanos::MAX && holder.is_valid(&self.slots, now) => {}
            Some(holder) => *holder = Holder { slot, generation, until },
            None => {
                node.holders.push(Holder { slot, generation, until });
                self.holders += 1;
            }
        }
        let is_new = until == Nanos::MAX && !was_reported;
        self.slots[slot as usize].reported += u32::from(is_new);
        self.keep_bounds();
    }

    fn remove(&mut self, slot: u32, key: u64, now: Nanos) {
        let Some(place) = self.places.get(&key).copied() else { return };
        let generation = self.book(slot).generation;
        let node = &mut self.nodes[place as usize];
        let Some(index) = node.holders.iter().position(|holder| holder.slot == slot) else {
            return;
        };
        let idle_ns = now.saturating_sub(node.used_at).0 as f64;
        let holder = node.holders.swap_remove(index);
        self.holders -= 1;
        let is_last = node.holders.is_empty();
        let book = &mut self.slots[slot as usize];
        if holder.is_reported(generation) {
            book.reported -= 1;
        }
        let mean = &mut book.idle_ns;
        *mean = if *mean == 0.0 { idle_ns } else { *mean + (idle_ns - *mean) * IDLE_WEIGHT };
        if is_last {
            self.forget(place);
        }
    }

    fn book(&mut self, slot: u32) -> &mut SlotBook {
        let slot = slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, SlotBook::default);
        }
        &mut self.slots[slot]
    }
}

// === impl CacheIndex: what calls find ===

impl CacheIndex {
    /// Looks up what a call that names `keys`, in this order, would find at each replica; read it by
    /// [`CacheIndex::found`]. Keys that are found count as used.
    pub(super) fn look_up(&mut self, keys: &[u64], now: Nanos) {
        self.finds.call += 1;
        let call = self.finds.call;
        self.finds.of_slot.resize_with(self.slots.len(), Find::default);
        for (position, key) in (0..).zip(keys) {
            let Some(place) = self.places.get(key) else { continue };
            let node = &self.nodes[*place as usize];
            let is_after_parent = position > 0 && keys[position as usize - 1] == node.parent;
            for holder in &node.holders {
                if !holder.is_valid(&self.slots, now) {
                    continue;
                }
                let find = &mut self.finds.of_slot[holder.slot as usize];
                if find.call != call {
                    *find = Find { call, count: 0, last: 0 };
                }
                if node.parent == 0 || (is_after_parent && find.last == position) {
                    find.count += 1;
                    find.last = position + 1;
                }
            }
        }
        for key in keys.iter().rev() {
            if let Some(place) = self.places.get(key).copied() {
                self.nodes[place as usize].used_at = now;
                self.move_to_front(place);
            }
        }
    }

    /// How many of its keys the call that was looked up last would find in `slot`.
    #[inline]
    pub(super) fn found(&self, slot: u32) -> u32 {
        let find = self.finds.of_slot.get(slot as usize);
        find.filter(|find| find.call == self.finds.call).map_or(0, |find| find.count)
    }

    /// For how long keys were not used that the replica in `slot` removed; `None`: it has removed
    /// none, as far as is known.
    #[inline]
    pub(super) fn idle_ns(&self, slot: u32) -> Option<f64> {
        let idle_ns = self.slots.get(slot as usize)?.idle_ns;
        (idle_ns > 0.0).then_some(idle_ns)
    }

    /// The shortest of those times; 0 if none is known.
    pub(super) fn shortest_idle_ns(&self) -> f64 {
        let known = self.slots.iter().map(|book| book.idle_ns).filter(|idle_ns| *idle_ns > 0.0);
        known.min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// How many keys the replica in `slot` has reported and not removed.
    pub(super) fn reported(&self, slot: u32) -> u32 {
        self.slots.get(slot as usize).map_or(0, |book| book.reported)
    }

    /// Keys that are known of.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.places.len() * KEY_BYTES + self.holders * HOLDER_BYTES
    }
}

// === impl CacheIndex: steps ===

impl CacheIndex {
    fn add_node(&mut self, key: u64) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node {
                key: 0,
                parent: 0,
                newer: NONE,
                older: NONE,
                used_at: Nanos::ZERO,
                holders: Vec::new(),
            });
            (self.nodes.len() - 1) as u32
        });
        let node = &mut self.nodes[place as usize];
        (node.key, node.newer, node.older) = (key, NONE, NONE);
        self.places.insert(key, place);
        self.link(place);
        place
    }

    /// Takes a node out, with its holders.
    fn forget(&mut self, place: u32) {
        self.unlink(place);
        let node = &mut self.nodes[place as usize];
        self.places.remove(&node.key);
        self.holders -= node.holders.len();
        for holder in node.holders.drain(..) {
            let book = &mut self.slots[holder.slot as usize];
            if holder.is_reported(book.generation) {
                book.reported -= 1;
            }
        }
        self.free.push(place);
    }

    /// The newest one stays, whatever it takes.
    fn keep_bounds(&mut self) {
        while self.oldest != self.newest
            && (self.places.len() > self.bounds.keys_max || self.bytes() > self.bounds.bytes_max)
        {
            self.forgotten += 1;
            self.forget(self.oldest);
        }
    }

    fn move_to_front(&mut self, place: u32) {
        if self.newest != place {
            self.unlink(place);
            self.link(place);
        }
    }

    fn link(&mut self, place: u32) {
        let newest = std::mem::replace(&mut self.newest, place);
        let node = &mut self.nodes[place as usize];
        (node.newer, node.older) = (NONE, newest);
        match newest {
            NONE => self.oldest = place,
            newest => self.nodes[newest as usize].newer = place,
        }
    }

    fn unlink(&mut self, place: u32) {
        let Node { newer, older, .. } = self.nodes[place as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }
}

impl Holder {
    #[inline]
    fn is_valid(&self, slots: &[SlotBook], now: Nanos) -> bool {
        self.until > now && self.generation == slots[self.slot as usize].generation
    }

    fn is_reported(&self, generation: u32) -> bool {
        self.until == Nanos::MAX && self.generation == generation
    }
}

/// The node of each key.
#[allow(clippy::disallowed_types)] // it is hashed by the router's seed
type Places = std::collections::HashMap<u64, u32, Spread>;

/// Spreads keys, which are hashes already, by a seed.
#[derive(Clone, Copy, Debug)]
struct Spread(u64);

impl BuildHasher for Spread {
    type Hasher = SpreadHasher;

    fn build_hasher(&self) -> SpreadHasher {
        SpreadHasher(self.0)
    }
}

#[derive(Debug)]
struct SpreadHasher(u64);

impl Hasher for SpreadHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0 ^ value);
    }
}

#[cfg(test)]
mod tests;
