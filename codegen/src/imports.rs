//! The imports of a file of services, and its names as they are written with them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::layout::{Code, Type};
use crate::rust_types::RustType;
use crate::services::{Kind, Service};

/// Names as they are written: short if they are imported or known, and with their path if the file
/// has the short name for something else.
pub(crate) struct Imports {
    imports: BTreeMap<Group, BTreeMap<String, BTreeSet<Sorted>>>,
    written: HashMap<&'static str, String>,
    messages: HashMap<RustType, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Std,
    Crates,
    Own,
}

/// The crate on which generated code is built.
pub(crate) const RUNTIME: &str = "ttrpc_keepalive";

/// What is known without an import, with its path.
const PRELUDE: [(&str, &str); 4] = [
    ("Result", "std::result"),
    ("Send", "std::marker"),
    ("Sized", "std::marker"),
    ("Sync", "std::marker"),
];

impl Imports {
    pub(crate) fn of(services: &[Service], uses_futures: bool) -> Self {
        let methods = || services.iter().flat_map(|service| &service.methods);
        let has = |kind| methods().any(|method| method.kind == kind);
        let streams = methods().any(|method| method.kind != Kind::Unary);
        let takes_many = methods().any(|method| method.kind.takes_many());
        let gives_many = methods().any(|method| method.kind.gives_many());
        let any = methods().next().is_some();
        let of_runtime = [
            ("Call", has(Kind::Unary)),
            ("Client", true),
            ("Code", any),
            ("Context", any),
            ("Receiver", gives_many),
            ("Reply", has(Kind::ClientStream)),
            ("Requests", takes_many),
            ("Responses", gives_many),
            ("Sender", takes_many),
            ("Service", true),
            ("Status", any),
            ("StreamCall", streams),
        ];
        let of_runtime = of_runtime.into_iter().filter(|(_, is_used)| *is_used);
        let mut wanted = vec![(Group::Std, "std::sync", "Arc")];
        if any && uses_futures {
            wanted.push((Group::Std, "std::future", "Future"));
        }
        wanted.extend(of_runtime.map(|(name, _)| (Group::Crates, RUNTIME, name)));

        let generated = services
            .iter()
            .flat_map(|service| [&service.interface, &service.client]);
        let generated: HashSet<&str> = generated.map(String::as_str).collect();
        let mut used = Self {
            imports: BTreeMap::new(),
            written: HashMap::new(),
            messages: HashMap::new(),
        };
        for (name, module) in PRELUDE {
            let is_own = generated.contains(name);
            let path = if is_own {
                format!("{module}::{name}")
            } else {
                name.to_owned()
            };
            used.written.insert(name, path);
        }
        for (group, module, name) in wanted {
            let path = if generated.contains(name) {
                format!("{module}::{name}")
            } else {
                used.import(group, module, name);
                name.to_owned()
            };
            used.written.insert(name, path);
        }

        let messages = methods().flat_map(|method| [&method.request, &method.response]);
        let messages: HashSet<&RustType> = messages.collect();
        let mut of_name: HashMap<&str, u32> = HashMap::new();
        for message in &messages {
            *of_name.entry(&message.name).or_default() += 1;
        }
        for message in messages {
            let name = message.name.as_str();
            let is_other = generated.contains(name) || used.written.contains_key(name);
            let path = if is_other || of_name[name] > 1 || message.is_nested || !is_importable(name)
            {
                format!("{}::{name}", message.module)
            } else {
                let is_own =
                    message.module.starts_with("super::") || message.module.starts_with("crate::");
                let group = if is_own { Group::Own } else { Group::Crates };
                used.import(group, &message.module, name);
                name.to_owned()
            };
            used.messages.insert(message.clone(), path);
        }
        used
    }

    fn import(&mut self, group: Group, module: &str, name: &str) {
        let modules = self.imports.entry(group).or_default();
        let names = modules.entry(module.to_owned()).or_default();
        names.insert(Sorted::of(name));
    }

    pub(crate) fn print(&self, code: &mut Code) {
        for (at, modules) in self.imports.values().enumerate() {
            if at > 0 {
                code.line("");
            }
            for (module, names) in modules {
                let names: Vec<_> = names.iter().map(|Sorted(_, name)| name.as_str()).collect();
                code.import(module, &names);
            }
        }
    }

    pub(crate) fn name(&self, name: &'static str) -> String {
        self.written
            .get(name)
            .map_or_else(|| name.to_owned(), Clone::clone)
    }

    pub(crate) fn message(&self, message: &RustType) -> Type {
        Type::Plain(self.messages.get(message).cloned().unwrap_or_default())
    }

    pub(crate) fn generic(&self, name: &'static str, parts: Vec<Type>) -> Type {
        Type::Generic(self.name(name), parts)
    }
}

/// Others are sorted by rustfmt in ways that depend on its edition.
fn is_importable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric())
        && name.contains(|c: char| c.is_ascii_lowercase())
}

/// A name in the order of rustfmt: digits count as numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sorted(Vec<Part>, String);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Text(String),
}

impl Sorted {
    fn of(name: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = name;
        while let Some(first) = rest.chars().next() {
            let is_number = first.is_ascii_digit();
            let end = rest.find(|c: char| c.is_ascii_digit() != is_number);
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            parts.push(match part.parse() {
                Ok(number) if is_number => Part::Number(number),
                _ => Part::Text(part.to_owned()),
            });
            rest = after;
        }
        Self(parts, name.to_owned())
    }
}
