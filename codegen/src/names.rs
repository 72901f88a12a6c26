//! Names of Rust for names of protobuf.

use std::collections::HashSet;

/// `GetURL` as `get_url`.
pub(crate) fn snake_case(name: &str) -> String {
    words(name).join("_")
}

/// `GetURL` as `GET_URL`.
pub(crate) fn constant_case(name: &str) -> String {
    snake_case(name).to_ascii_uppercase()
}

/// `http_server` and `HTTPServer` as `HttpServer`.
pub(crate) fn camel_case(name: &str) -> String {
    words(name).iter().map(|word| capitalized(word)).collect()
}

pub(crate) fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// In lower case. A word begins where a capital follows a small letter or a digit, or comes before one.
fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words = Vec::new();
    let mut word = String::new();
    for (at, &c) in chars.iter().enumerate() {
        let is_capital = |c: Option<&char>| c.is_some_and(char::is_ascii_uppercase);
        let before = at.checked_sub(1).and_then(|before| chars.get(before));
        let after = chars.get(at + 1).filter(|after| **after != '_');
        let begins =
            is_capital(Some(&c)) && (!is_capital(before) || after.is_some() && !is_capital(after));
        if (c == '_' || begins) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c != '_' {
            word.push(c.to_ascii_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Names that are given once: one that is taken, or that Rust keeps for itself, gets a `_` at its
/// end, as rust-protobuf does it for fields.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<String>);

impl Names {
    pub(crate) fn with_taken<const N: usize>(taken: [&str; N]) -> Self {
        Self(taken.map(str::to_owned).into())
    }

    pub(crate) fn give(&mut self, name: String) -> String {
        // A name of underscores alone has no words.
        let mut name = if name.is_empty() {
            "_".to_owned()
        } else {
            name
        };
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            name.insert(0, '_');
        }
        while KEYWORDS.contains(&name.as_str()) || self.0.contains(&name) {
            name.push('_');
        }
        self.0.insert(name.clone());
        name
    }
}

/// Keywords of all editions, and those that are reserved.
const KEYWORDS: &[&str] = &[
    "_", "Self", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue",
    "crate", "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if",
    "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub",
    "ref", "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words_where_a_reader_would() {
        let cases = [
            ("Say", "say"),
            ("GetURL", "get_url"),
            ("HTTPGet", "http_get"),
            ("getV2Info", "get_v2_info"),
            ("SetIPV4", "set_ip_v4"),
            ("A1B", "a1_b"),
            ("AB_CD", "ab_cd"),
            ("__snake_case_", "snake_case"),
        ];
        for (name, snake) in cases {
            assert_eq!(snake_case(name), snake, "{name}");
        }
        assert_eq!(camel_case("HTTPServer_v2"), "HttpServerV2");
        assert_eq!(constant_case("GetURL"), "GET_URL");
    }

    #[test]
    fn a_name_is_given_once_and_is_none_of_rust() {
        let mut names = Names::with_taken(["new"]);
        let given =
            ["new", "move", "move", "get", "", "2d"].map(|name| names.give(name.to_owned()));
        assert_eq!(given, ["new_", "move_", "move__", "get", "__", "_2d"]);
    }
}
