//! Counters of a front per protocol.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use router_call::Door;
use router_dispatch::Classes;

/// By [`Door::OF_CLIENTS`].
#[derive(Debug, Default)]
pub struct Doors([Counts; Door::OF_CLIENTS.len()]);

#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    answered: Classes,
}

impl Doors {
    /// A request has ended with this status, or with its client's leave.
    pub(super) fn count(&self, door: Door, status: Option<StatusCode>) {
        if let Some(counts) = self.of(door) {
            counts.answered.count(status);
        }
    }

    pub(super) fn open(&self, door: Door) {
        if let Some(counts) = self.of(door) {
            counts.open.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn close(&self, door: Door) {
        if let Some(counts) = self.of(door) {
            counts.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// By the word for the door: requests that are open, and those that were answered, by class.
    pub fn read(&self) -> Vec<(&'static str, Vec<(&'static str, u64)>)> {
        let words = Door::OF_CLIENTS.into_iter().map(Door::word);
        words.zip(self.0.iter().map(Counts::read)).collect()
    }

    fn of(&self, door: Door) -> Option<&Counts> {
        self.0.get(door as usize)
    }
}

impl Counts {
    fn read(&self) -> Vec<(&'static str, u64)> {
        let mut counts = vec![("open", self.open.load(Ordering::Relaxed))];
        counts.extend(self.answered.read());
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_door_of_clients_has_its_own_counts() {
        for (index, door) in Door::OF_CLIENTS.into_iter().enumerate() {
            assert_eq!(index, door as usize, "{door:?}");
            let doors = Doors::default();
            doors.open(door);
            doors.count(door, Some(StatusCode::NOT_FOUND));
            doors.count(door, None);
            doors.open(Door::Handle);
            let found: Vec<_> = doors
                .read()
                .into_iter()
                .filter(|(_, counts)| counts.iter().any(|(_, count)| *count > 0))
                .collect();
            let [(word, counts)] = &found[..] else { panic!("one door was used: {found:?}") };
            assert_eq!(door.word(), *word);
            let expected = [
                ("open", 1),
                ("1xx", 0),
                ("2xx", 0),
                ("3xx", 0),
                ("4xx", 1),
                ("5xx", 0),
                ("left", 1),
            ];
            assert_eq!(expected.to_vec(), *counts);
            doors.close(door);
            assert_eq!(0, doors.read()[index].1[0].1);
        }
    }
}
