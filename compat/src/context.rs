//! Time and metadata of a call.

use std::collections::HashMap;
use std::time::Duration;

use crate::proto::KeyValue;

/// Time and metadata that a call is made with.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Values by key. Keys are sent in lower case.
    pub metadata: HashMap<String, Vec<String>>,
    /// How long the call may take, in nanoseconds; as long as it takes if it is 0 or less.
    pub timeout_nano: i64,
}

/// No metadata, and so many nanoseconds.
pub fn with_timeout(nanoseconds: i64) -> Context {
    Context {
        timeout_nano: nanoseconds,
        ..Context::default()
    }
}

/// No metadata, and this time; 292 years if it is longer.
pub fn with_duration(duration: Duration) -> Context {
    with_timeout(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// This metadata, and no limit of time.
pub fn with_metadata(metadata: HashMap<String, Vec<String>>) -> Context {
    Context {
        metadata,
        ..Context::default()
    }
}

impl Context {
    /// Adds a value. A new key is taken in lower case, one that is there as it is given.
    pub fn add(&mut self, key: String, value: String) {
        match self.metadata.get_mut(&key) {
            Some(values) => values.push(value),
            None => {
                self.metadata.insert(key.to_lowercase(), vec![value]);
            }
        }
    }

    /// Sets all values of a key, which is taken in lower case. Without values it removes the key, as it is
    /// given.
    pub fn set(&mut self, key: String, values: Vec<String>) {
        if values.is_empty() {
            self.metadata.remove(&key);
        } else {
            self.metadata.insert(key.to_lowercase(), values);
        }
    }
}

/// The pairs of a message by their keys.
#[expect(clippy::ptr_arg, reason = "the signature of the crate ttrpc")]
pub fn from_pb(pairs: &Vec<KeyValue>) -> HashMap<String, Vec<String>> {
    by_key(pairs.iter().map(|pair| (&*pair.key, &*pair.value)))
}

/// Metadata as the pairs of a message. Keys come in no order, the values of each in theirs.
pub fn to_pb(metadata: HashMap<String, Vec<String>>) -> Vec<KeyValue> {
    let pair = |key: &str, value| {
        let mut pair = KeyValue::new();
        key.clone_into(&mut pair.key);
        pair.value = value;
        pair
    };
    let keys = metadata.into_iter();
    keys.flat_map(|(key, values)| {
        let pairs: Vec<_> = values.into_iter().map(|value| pair(&key, value)).collect();
        pairs
    })
    .collect()
}

pub(crate) fn by_key<'a>(
    pairs: impl Iterator<Item = (&'a str, &'a str)>,
) -> HashMap<String, Vec<String>> {
    let mut metadata = HashMap::<_, Vec<_>>::new();
    for (key, value) in pairs {
        let values = metadata.entry(key.to_owned()).or_default();
        values.push(value.to_owned());
    }
    metadata
}
