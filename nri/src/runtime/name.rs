//! How plugins are called: an index, which orders them, and a name.

use std::fmt;

/// A plugin's index and name, which is written `10-devices`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PluginName {
    /// Two digits: plugins are asked in ascending order.
    pub(crate) index: String,
    pub(crate) base: String,
}

impl PluginName {
    /// Checks what a plugin registers with.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words.
    pub(crate) fn new(index: &str, base: &str) -> Result<Self, String> {
        let two_digits = index.len() == 2 && index.bytes().all(|byte| byte.is_ascii_digit());
        if !two_digits {
            return Err(format!(
                "the index of plugin {base:?} is not two digits: {index:?}"
            ));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        if base.is_empty() || !base.chars().all(allowed) {
            return Err(format!("not a name for a plugin: {base:?}"));
        }
        Ok(Self {
            index: index.to_owned(),
            base: base.to_owned(),
        })
    }

    /// Takes apart a name of the form `10-devices`, as plugins' files have it.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name.split_once('-') {
            Some((index, base)) => Self::new(index, base),
            None => Err(format!("not of the form 10-name: {name:?}")),
        }
    }

    /// Whether a configuration that says `name`, with or without an index, means this plugin.
    pub(crate) fn answers_to(&self, name: &str) -> bool {
        self.base == name || self.to_string() == name
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.index, self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_two_digits_and_a_name_has_no_odd_characters() {
        for (index, base) in [("10", "devices"), ("00", "a-b_c.d+E9")] {
            assert_eq!(
                PluginName::new(index, base).map(|name| name.to_string()),
                Ok(format!("{index}-{base}"))
            );
        }
        for (index, base) in [
            ("1", "a"),
            ("100", "a"),
            ("1a", "a"),
            ("", "a"),
            ("١٢", "a"),
            ("10", ""),
            ("10", "a/b"),
            ("10", "ä"),
            ("10", "a b"),
        ] {
            assert!(PluginName::new(index, base).is_err(), "{index:?} {base:?}");
        }
        assert!(PluginName::parse("devices").is_err());
        assert!(PluginName::parse("10-a-b").is_ok_and(|name| name.base == "a-b"));
    }

    #[test]
    fn a_configuration_names_a_plugin_with_or_without_its_index() {
        let plugin = PluginName::parse("10-devices").unwrap();
        assert!(plugin.answers_to("devices") && plugin.answers_to("10-devices"));
        assert!(!plugin.answers_to("20-devices") && !plugin.answers_to("evices"));
    }
}
