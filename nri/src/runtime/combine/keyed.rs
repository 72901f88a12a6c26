//! Lists and maps whose entries have keys, and the mark by which a plugin removes one.

use std::collections::{HashMap, HashSet};

use crate::api::{KeyValue, LinuxDevice, LinuxNamespace, Mount};
use crate::removal;

/// The key without the mark, if it has one.
fn removed(key: &str) -> Option<&str> {
    key.strip_prefix('-')
}

/// An entry of a list, found by its key.
pub(super) trait Keyed {
    /// As it was given, with the mark if it has one.
    fn raw_key(&self) -> &str;

    fn key(&self) -> &str {
        removed(self.raw_key()).unwrap_or_else(|| self.raw_key())
    }

    fn is_removal(&self) -> bool {
        removed(self.raw_key()).is_some()
    }
}

impl Keyed for Mount {
    fn raw_key(&self) -> &str {
        &self.destination
    }
}

impl Keyed for LinuxDevice {
    fn raw_key(&self) -> &str {
        &self.path
    }
}

impl Keyed for LinuxNamespace {
    fn raw_key(&self) -> &str {
        &self.type_
    }
}

impl Keyed for KeyValue {
    fn raw_key(&self) -> &str {
        &self.key
    }
}

/// What one answer says of the entries of one field.
#[derive(Debug)]
pub(super) struct Wishes<'a> {
    pub(super) set: HashSet<&'a str>,
    pub(super) removed: HashSet<&'a str>,
}

impl<'a> Wishes<'a> {
    pub(super) fn of_list<T: Keyed>(entries: &'a [T]) -> Self {
        Self::of(entries.iter().map(Keyed::raw_key))
    }

    pub(super) fn of_map<V>(entries: &'a HashMap<String, V>) -> Self {
        Self::of(entries.keys().map(String::as_str))
    }

    fn of(keys: impl Iterator<Item = &'a str>) -> Self {
        let mut wishes = Self {
            set: HashSet::new(),
            removed: HashSet::new(),
        };
        for key in keys {
            match removed(key) {
                Some(key) => wishes.removed.insert(key),
                None => wishes.set.insert(key),
            };
        }
        wishes
    }

    fn touches(&self, key: &str) -> bool {
        self.set.contains(key) || self.removed.contains(key)
    }
}

/// Puts what a plugin wants into what was collected before. An entry that is set anew needs no removal
/// beside it; one that is only removed keeps its mark, for the runtime to apply.
pub(super) fn collect<T: Keyed + Clone>(from: &[T], into: &mut Vec<T>) {
    let wishes = Wishes::of_list(from);
    into.retain(|entry| !wishes.touches(entry.key()));
    into.extend(from.iter().filter(|entry| !entry.is_removal()).cloned());
    let only_removed = |entry: &&T| entry.is_removal() && !wishes.set.contains(entry.key());
    into.extend(from.iter().filter(only_removed).cloned());
}

/// The same for a container as it will be: what is removed is not there.
pub(super) fn apply<T: Keyed + Clone>(from: &[T], into: &mut Vec<T>) {
    let wishes = Wishes::of_list(from);
    into.retain(|entry| !wishes.touches(entry.key()));
    into.extend(from.iter().filter(|entry| !entry.is_removal()).cloned());
}

/// As [`collect`], for a map.
pub(super) fn collect_map<V: Clone + Default>(
    from: &HashMap<String, V>,
    into: &mut HashMap<String, V>,
) {
    let wishes = Wishes::of_map(from);
    for key in &wishes.removed {
        into.remove(*key);
        into.insert(removal(key), V::default());
    }
    for key in &wishes.set {
        into.remove(&removal(key));
        if let Some(value) = from.get(*key) {
            into.insert((*key).to_owned(), value.clone());
        }
    }
}

/// As [`apply`], for a map.
pub(super) fn apply_map<V: Clone>(from: &HashMap<String, V>, into: &mut HashMap<String, V>) {
    let wishes = Wishes::of_map(from);
    for key in &wishes.removed {
        into.remove(*key);
    }
    for key in &wishes.set {
        if let Some(value) = from.get(*key) {
            into.insert((*key).to_owned(), value.clone());
        }
    }
}

/// As [`apply`], for the variables of a container, which are lines `NAME=value`.
pub(super) fn apply_env(from: &[KeyValue], into: &mut Vec<String>) {
    let wishes = Wishes::of_list(from);
    into.retain(|line| {
        let name = line.split_once('=').map_or(line.as_str(), |(name, _)| name);
        !wishes.touches(name)
    });
    let set = from.iter().filter(|entry| !entry.is_removal());
    into.extend(set.map(|entry| format!("{}={}", entry.key, entry.value)));
}
