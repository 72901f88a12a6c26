//! Texts and bytes of a peer as they are shown: cut, and on one line.
//!
//! A peer may fill a frame with one text. In a log, an error or an answer it is worth some of its
//! beginning, and a line of its own would let it pretend to be another entry of the log. Whoever wants
//! all of it has an accessor for that.

use std::fmt::{self, Debug, Display, Formatter};

use crate::tuning::{SHOWN_BYTES, SHOWN_ENTRIES, SHOWN_NAME, SHOWN_TEXT};

/// A text, or as much of it as is shown.
pub(crate) struct Shown<'a> {
    text: &'a str,
    /// The length of all of it, if that was more.
    cut_from: Option<usize>,
}

/// The name of a service or method, or a key.
pub(crate) fn name(text: &str) -> Shown<'_> {
    Shown::cut(text, SHOWN_NAME)
}

/// A text for people.
pub(crate) fn message(text: &str) -> Shown<'_> {
    Shown::cut(text, SHOWN_TEXT)
}

impl<'a> Shown<'a> {
    fn cut(text: &'a str, limit: usize) -> Self {
        // Between two characters, at most three bytes earlier.
        let mut end = limit.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            text: &text[..end],
            cut_from: (end < text.len()).then_some(text.len()),
        }
    }

    fn end(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.cut_from {
            Some(length) => write!(f, "... ({length} bytes)"),
            None => Ok(()),
        }
    }
}

/// Plain, but for what would end the line or move on it.
impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for part in self.text.split_inclusive(breaks_line) {
            let mut letters = part.chars();
            match letters.next_back() {
                Some(last) if breaks_line(last) => {
                    f.write_str(letters.as_str())?;
                    write!(f, "{}", last.escape_default())?;
                }
                _ => f.write_str(part)?,
            }
        }
        self.end(f)
    }
}

/// In quotes.
impl Debug for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(self.text, f)?;
        self.end(f)
    }
}

/// Control characters, and what else separates lines or turns their direction.
fn breaks_line(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Bytes, or the first of them.
pub(crate) struct ShownBytes<'a>(pub(crate) &'a [u8]);

impl Debug for ShownBytes<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..SHOWN_BYTES).unwrap_or(self.0);
        write!(f, "b\"{}\"", shown.escape_ascii())?;
        if shown.len() < self.0.len() {
            write!(f, "... ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

/// Pairs of metadata, or the first of them.
pub(crate) struct ShownPairs<'a>(pub(crate) &'a [(String, String)]);

impl Debug for ShownPairs<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..SHOWN_ENTRIES).unwrap_or(self.0);
        let entries = shown.iter().map(|(key, value)| (name(key), name(value)));
        f.debug_map().entries(entries).finish()?;
        if shown.len() < self.0.len() {
            write!(f, "... ({} pairs)", self.0.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters_and_says_how_long_it_was() {
        let whole = "\u{10ffff}".repeat(SHOWN_NAME);
        let shown = name(&whole).to_string();
        assert!(shown.starts_with("\u{10ffff}\u{10ffff}"), "{shown}");
        assert!(shown.ends_with("... (512 bytes)"), "{shown}");
        assert!(shown.len() < SHOWN_NAME + 30);
        let just = "x".repeat(SHOWN_NAME);
        assert_eq!(name(&just).to_string(), just);
        assert_eq!(format!("{:?}", name("a\"b")), "\"a\\\"b\"");
    }

    #[test]
    fn a_text_stays_on_its_line() {
        let forged = message("no\nERROR all is lost\r\u{1b}[2J \u{2028}\u{202e}ü");
        assert_eq!(
            forged.to_string(),
            "no\\nERROR all is lost\\r\\u{1b}[2J \\u{2028}\\u{202e}ü"
        );
    }

    #[test]
    fn bytes_and_pairs_are_cut_too() {
        let shown = format!("{:?}", ShownBytes(&[b'x'; 4 << 20]));
        assert!(shown.ends_with("xx\"... (4194304 bytes)"), "{shown}");
        let pairs = vec![("k".repeat(1 << 20), "v".repeat(1 << 20)); SHOWN_ENTRIES + 1];
        let shown = format!("{:?}", ShownPairs(&pairs));
        assert!(
            shown.len() < SHOWN_ENTRIES * 2 * (SHOWN_NAME + 40),
            "{shown}"
        );
        assert!(shown.ends_with("... (17 pairs)"), "{shown}");
        assert_eq!(format!("{:?}", ShownPairs(&pairs[..0])), "{}");
    }
}
