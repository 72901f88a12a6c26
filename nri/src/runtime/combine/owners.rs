//! Who set which field of which container: the rule that makes two plugins' wishes a conflict.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use protobuf::Enum;

use crate::api::{Field, FieldOwners, OwningPlugins};
use crate::removal;

/// Two plugins want different things, so that neither can be had.
///
/// It fails the event, as in other runtimes: which of the two should win is for the node's
/// administrator to say, by the plugins' configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    plugin: String,
    container: String,
    about: About,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum About {
    /// Another one has set this field, or this entry of it.
    Field {
        field: Field,
        key: Option<String>,
        other: String,
    },
    /// An update of the very container that is being created: that is what an adjustment is for.
    Creation,
}

impl Conflict {
    /// The plugin whose answer could not be applied, by index and name.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// The plugin that had set the same before. `None` if this is not about what another one did.
    pub fn other(&self) -> Option<&str> {
        match &self.about {
            About::Field { other, .. } => Some(other),
            About::Creation => None,
        }
    }

    /// The container that both wanted to change, by its id.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The field that both set. `None` if this is not about one.
    pub fn field(&self) -> Option<Field> {
        match &self.about {
            About::Field { field, .. } => Some(*field),
            About::Creation => None,
        }
    }

    /// Which entry of the field: the name of a variable or of an annotation, the path of a mount or of a
    /// device. `None` for fields without entries.
    pub fn key(&self) -> Option<&str> {
        match &self.about {
            About::Field { key, .. } => key.as_deref(),
            About::Creation => None,
        }
    }

    pub(super) fn creation(plugin: &str, container: &str) -> Self {
        Self {
            plugin: plugin.to_owned(),
            container: container.to_owned(),
            about: About::Creation,
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plugin, container) = (&self.plugin, &self.container);
        match &self.about {
            About::Field { field, key, other } => {
                if plugin == other {
                    write!(f, "plugin {plugin} sets {field:?}")?;
                } else {
                    write!(f, "plugins {other} and {plugin} both set {field:?}")?;
                }
                if let Some(key) = key {
                    write!(f, " {key:?}")?;
                }
                write!(f, " of container {container}")?;
                if plugin == other {
                    f.write_str(" twice")?;
                }
                Ok(())
            }
            About::Creation => write!(
                f,
                "plugin {plugin} updates container {container} while that is being created"
            ),
        }
    }
}

impl std::error::Error for Conflict {}

/// The owners of all fields that were set in one event.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    containers: BTreeMap<String, Fields>,
}

type Fields = BTreeMap<(i32, Option<String>), Owner>;

/// A field belongs to who set it. One who removes an entry of another takes it over: then that one alone
/// may set it again.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    Set(String),
    Removed(String),
}

impl Owner {
    /// As the protocol tells it to validators.
    fn name(&self) -> String {
        match self {
            Self::Set(plugin) => plugin.clone(),
            Self::Removed(plugin) => removal(plugin),
        }
    }
}

impl Owners {
    /// What one plugin claims of one container.
    pub(super) fn claims<'a>(&'a mut self, container: &'a str, plugin: &'a str) -> Claims<'a> {
        Claims {
            fields: self.containers.entry(container.to_owned()).or_default(),
            container,
            plugin,
        }
    }

    pub(super) fn message(&self) -> OwningPlugins {
        let mut message = OwningPlugins::new();
        for (container, fields) in &self.containers {
            let mut owners = FieldOwners::new();
            for ((field, key), owner) in fields {
                match key {
                    None => {
                        owners.simple.insert(*field, owner.name());
                    }
                    Some(key) => {
                        let entries = owners.compound.entry(*field).or_default();
                        entries.owners.insert(key.clone(), owner.name());
                    }
                }
            }
            message.owners.insert(container.clone(), owners);
        }
        message
    }
}

#[derive(Debug)]
pub(super) struct Claims<'a> {
    fields: &'a mut Fields,
    container: &'a str,
    plugin: &'a str,
}

impl Claims<'_> {
    /// A field that has one value.
    pub(super) fn simple(&mut self, field: Field) -> Result<(), Conflict> {
        self.claim(field, None)
    }

    /// One entry of a field that has several.
    pub(super) fn entry(&mut self, field: Field, key: &str) -> Result<(), Conflict> {
        self.claim(field, Some(key.to_owned()))
    }

    /// Takes away what another one has set. What nobody has set stays anybody's.
    pub(super) fn remove(&mut self, field: Field, key: Option<&str>) {
        if let Some(owner) = self
            .fields
            .get_mut(&(field.value(), key.map(str::to_owned)))
        {
            *owner = Owner::Removed(self.plugin.to_owned());
        }
    }

    /// A field to which everybody adds.
    pub(super) fn share(&mut self, field: Field) {
        match self.fields.entry((field.value(), None)) {
            Entry::Vacant(entry) => {
                entry.insert(Owner::Set(self.plugin.to_owned()));
            }
            Entry::Occupied(mut entry) => {
                let owners = format!("{},{}", entry.get().name(), self.plugin);
                entry.insert(Owner::Set(owners));
            }
        }
    }

    fn claim(&mut self, field: Field, key: Option<String>) -> Result<(), Conflict> {
        let (Owner::Set(other) | Owner::Removed(other)) =
            match self.fields.entry((field.value(), key.clone())) {
                Entry::Vacant(entry) => {
                    entry.insert(Owner::Set(self.plugin.to_owned()));
                    return Ok(());
                }
                Entry::Occupied(mut entry) => {
                    if *entry.get() == Owner::Removed(self.plugin.to_owned()) {
                        entry.insert(Owner::Set(self.plugin.to_owned()));
                        return Ok(());
                    }
                    entry.get().clone()
                }
            };
        Err(Conflict {
            plugin: self.plugin.to_owned(),
            container: self.container.to_owned(),
            about: About::Field { field, key, other },
        })
    }
}
