//! The words of a `.proto` file with their places and the comments between them, of which the parser
//! keeps none.
//!
//! Only files that the parser has accepted come here, so this knows no syntax errors; text that it
//! does not understand gives fewer or other tokens.

use crate::error::Position;

#[derive(Debug)]
pub(crate) struct Tokens<'a> {
    pub(crate) tokens: Vec<Token<'a>>,
    pub(crate) comments: Vec<Comment<'a>>,
}

#[derive(Debug)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) kind: TokenKind,
    pub(crate) position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A name, a keyword or a number.
    Word,
    /// With its quotes.
    Text,
    Symbol,
}

#[derive(Debug)]
pub(crate) struct Comment<'a> {
    /// Without its marks.
    pub(crate) text: &'a str,
    pub(crate) kind: CommentKind,
    pub(crate) first_line: u32,
    pub(crate) last_line: u32,
    /// Nothing else stands before it on its line.
    pub(crate) is_alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommentKind {
    Line,
    Block,
}

impl<'a> Tokens<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let mut cursor = Cursor {
            rest: text,
            position: Position { line: 1, column: 1 },
        };
        let mut found = Self {
            tokens: Vec::new(),
            comments: Vec::new(),
        };
        loop {
            cursor.take_while(char::is_whitespace);
            let position = cursor.position;
            if cursor.rest.starts_with("//") {
                let text = cursor.take_while(|c| c != '\n');
                found.comment(&text[2..], CommentKind::Line, position.line, position.line);
            } else if cursor.rest.starts_with("/*") {
                let text = cursor.take_block();
                let text = &text[2..];
                let text = text.strip_suffix("*/").unwrap_or(text);
                let last_line = cursor.position.line;
                found.comment(text, CommentKind::Block, position.line, last_line);
            } else if let Some(first) = cursor.rest.chars().next() {
                let (text, kind) = match first {
                    '"' | '\'' => (cursor.take_quoted(first), TokenKind::Text),
                    c if is_word(c) => (cursor.take_while(is_word), TokenKind::Word),
                    c => (cursor.take(c.len_utf8()), TokenKind::Symbol),
                };
                found.tokens.push(Token {
                    text,
                    kind,
                    position,
                });
            } else {
                return found;
            }
        }
    }

    fn comment(&mut self, text: &'a str, kind: CommentKind, first_line: u32, last_line: u32) {
        let before = self.tokens.last().map(|token| token.position.line);
        self.comments.push(Comment {
            text,
            kind,
            first_line,
            last_line,
            is_alone: before != Some(first_line),
        });
    }

    /// Where a name is used for the first time: with all of its path, else with what is left of it
    /// in a package or a message.
    pub(crate) fn position_of(&self, name: &str) -> Option<Position> {
        let parts: Vec<_> = name.trim_start_matches('.').split('.').collect();
        let mut paths = (0..parts.len()).map(|first| &parts[first..]);
        paths.find_map(|path| self.position_of_path(path))
    }

    fn position_of_path(&self, path: &[&str]) -> Option<Position> {
        let is_use = |start: &usize| {
            let before = start.checked_sub(1).and_then(|before| self.text(before));
            let declares = matches!(before, Some("message" | "enum"));
            let is_path = path.iter().enumerate().all(|(part, word)| {
                let at = start + 2 * part;
                let follows = part == 0 || self.text(at - 1) == Some(".");
                follows && self.text(at) == Some(word)
            });
            is_path && !declares
        };
        let start = (0..self.tokens.len()).find(is_use)?;
        Some(self.tokens[start].position)
    }

    /// Where a text is written for the first time.
    pub(crate) fn position_of_text(&self, text: &str) -> Option<Position> {
        let is_it = |token: &&Token<'_>| {
            token.kind == TokenKind::Text && token.text.trim_matches(['"', '\'']) == text
        };
        Some(self.tokens.iter().find(is_it)?.position)
    }

    pub(crate) fn text(&self, at: usize) -> Option<&'a str> {
        Some(self.tokens.get(at)?.text)
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Cursor<'a> {
    rest: &'a str,
    position: Position,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        for c in taken.chars() {
            if c == '\n' {
                self.position.line += 1;
                self.position.column = 1;
            } else {
                self.position.column += 1;
            }
        }
        taken
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c));
        self.take(end.unwrap_or(self.rest.len()))
    }

    fn take_block(&mut self) -> &'a str {
        let end = self.rest[2..].find("*/").map(|end| end + 4);
        self.take(end.unwrap_or(self.rest.len()))
    }

    fn take_quoted(&mut self, quote: char) -> &'a str {
        let mut escaped = false;
        let end = self.rest[1..].find(|c| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        self.take(end.map_or(self.rest.len(), |end| end + 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_comments_hide_what_is_in_them() {
        let text = "a /* b // c */ \"d // \\\" e\" // f \"\n'/* g'";
        let found = Tokens::of(text);
        let texts: Vec<_> = found.tokens.iter().map(|token| token.text).collect();
        assert_eq!(texts, ["a", "\"d // \\\" e\"", "'/* g'"]);
        let comments: Vec<_> = found.comments.iter().map(|comment| comment.text).collect();
        assert_eq!(comments, [" b // c ", " f \""]);
    }

    #[test]
    fn a_name_is_found_where_it_is_used_and_not_within_another() {
        let text = "message Tex {}\n  Tex a.Text .b . Text";
        let found = Tokens::of(text);
        let at = |name| found.position_of(name).map(|p| (p.line, p.column));
        assert_eq!(at("Tex"), Some((2, 3)));
        assert_eq!(at("a.Text"), Some((2, 7)));
        assert_eq!(at(".b.Text"), Some((2, 15)));
        assert_eq!(at(".c.d.Text"), Some((2, 9)));
        assert_eq!(at("a.d"), None);
    }
}
