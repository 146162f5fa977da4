//! Storage whose handles go stale instead of dangling.

/// Identifies an entry: the index in the low half, its generation in the high half.
pub(crate) type Key = u64;

/// A vector with reusable places. Freeing or renaming an entry changes its generation, so that
/// every older key of the place is recognised as stale. Generations wrap after 2^32 uses of one
/// place, so a stale key would be mistaken only if it were kept through all of them.
///
/// Freed entries keep their value (and what it has allocated) for the next use.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    occupied: bool,
    value: T,
}

impl<T: Default> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Takes a place. Its value is that of the last use, or the default: the caller resets it.
    #[inline]
    pub(crate) fn occupy(&mut self) -> (Key, &mut T) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, occupied: false, value: T::default() });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.occupied = true;
        (key(index, entry.generation), &mut entry.value)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(index_of(key) as usize)?;
        (entry.occupied && entry.generation == generation_of(key)).then_some(&entry.value)
    }

    /// The entry at `index`, which must be occupied.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &T {
        let entry = &self.entries[index as usize];
        debug_assert!(entry.occupied, "entry {index} is free");
        &entry.value
    }

    /// Like [`Slab::at`], but mutable.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.occupied, "entry {index} is free");
        &mut entry.value
    }

    /// All entries, by index.
    pub(crate) fn occupied(&self) -> impl Iterator<Item = (u32, &T)> {
        let occupied = (0..).zip(&self.entries).filter(|(_, entry)| entry.occupied);
        occupied.map(|(index, entry)| (index, &entry.value))
    }

    /// The current key of the entry at `index`.
    #[inline]
    pub(crate) fn key_at(&self, index: u32) -> Key {
        key(index, self.entries[index as usize].generation)
    }

    /// Makes all keys of the entry at `index` stale and returns its new one.
    #[inline]
    pub(crate) fn rename(&mut self, index: u32) -> Key {
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.occupied, "entry {index} is free");
        entry.generation = entry.generation.wrapping_add(1);
        key(index, entry.generation)
    }

    /// Frees the entry at `index`.
    #[inline]
    pub(crate) fn vacate(&mut self, index: u32) {
        self.rename(index);
        self.entries[index as usize].occupied = false;
        self.free.push(index);
    }
}

#[inline]
const fn key(index: u32, generation: u32) -> Key {
    ((generation as u64) << 32) | index as u64
}

#[inline]
pub(crate) const fn index_of(key: Key) -> u32 {
    key as u32
}

#[inline]
const fn generation_of(key: Key) -> u32 {
    (key >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_place_is_reused_under_another_key() {
        let mut slab = Slab::<u32>::new();
        let (first, value) = slab.occupy();
        *value = 7;
        slab.vacate(index_of(first));
        let (second, value) = slab.occupy();
        *value = 8;
        assert_eq!(index_of(first), index_of(second));
        assert_eq!(None, slab.get(first));
        assert_eq!(Some(&8), slab.get(second));
    }

    #[test]
    fn renaming_keeps_the_value_and_ends_the_old_key() {
        let mut slab = Slab::<u32>::new();
        let (old, value) = slab.occupy();
        *value = 7;
        let new = slab.rename(index_of(old));
        assert_eq!((None, Some(&7)), (slab.get(old), slab.get(new)));
        assert_eq!(new, slab.key_at(index_of(new)));
    }

    #[test]
    fn unknown_and_vacant_keys_find_nothing() {
        let mut slab = Slab::<u32>::new();
        assert_eq!(None, slab.get(3));
        let (key, _) = slab.occupy();
        slab.vacate(index_of(key));
        assert_eq!(None, slab.get(slab.key_at(index_of(key))));
    }
}
