//! What a `.proto` file declares: each name with its place and its comment.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::docs::documentation;
use crate::error::Position;
use crate::tokens::{Comment, CommentKind, TokenKind, Tokens};

/// By their names within the file, as `Echo.Say`, without the package.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    by_name: HashMap<String, Declaration>,
    /// Declared before, in the order of the file.
    pub(crate) twice: Vec<(String, Position)>,
}

#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) position: Position,
    /// Lines of Markdown; none if there is no comment.
    pub(crate) docs: Vec<String>,
}

impl Declarations {
    pub(crate) fn of(tokens: &Tokens<'_>) -> Self {
        let mut found = Self::default();
        let mut reader = Reader {
            tokens,
            found: &mut found,
            next: 0,
        };
        while reader.next < tokens.tokens.len() {
            reader.body(Scope::File, "");
        }
        found
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Declaration> {
        self.by_name.get(name)
    }

    pub(crate) fn docs(&self, name: &str) -> &[String] {
        self.get(name).map_or(&[], |declaration| &declaration.docs)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    File,
    Message,
    Enum,
    Service,
}

struct Reader<'a, 'b> {
    tokens: &'a Tokens<'a>,
    found: &'b mut Declarations,
    next: usize,
}

impl<'a> Reader<'a, '_> {
    /// To the brace that closes it, or the end of the file.
    fn body(&mut self, scope: Scope, prefix: &str) {
        while let Some(text) = self.text(0) {
            match text {
                "}" => {
                    self.next += 1;
                    return;
                }
                ";" => self.next += 1,
                _ => self.statement(scope, prefix),
            }
        }
    }

    fn statement(&mut self, scope: Scope, prefix: &str) {
        let is_block = self.kind(1) == Some(TokenKind::Word) && self.text(2) == Some("{");
        let keyword = self.text(0).unwrap_or_default();
        let name = format!("{prefix}{}", self.text(1).unwrap_or_default());
        let inner = match (scope, keyword) {
            (Scope::File | Scope::Message, "message") if is_block => Scope::Message,
            (Scope::File | Scope::Message, "enum") if is_block => Scope::Enum,
            (Scope::File, "service") if is_block => Scope::Service,
            // Its fields are those of the message.
            (Scope::Message, "oneof") if is_block => {
                self.declare(name, 1, self.next + 2);
                self.next += 3;
                return self.body(Scope::Message, prefix);
            }
            (Scope::Service, "rpc") => {
                let end = self.end_of_statement();
                self.declare(name, 1, self.head(end));
                self.next = end;
                return;
            }
            (Scope::Message, "option" | "reserved" | "extensions" | "extend")
            | (Scope::Enum, "option" | "reserved")
            | (Scope::Service | Scope::File, _) => {
                self.next = self.end_of_statement();
                return;
            }
            (Scope::Message | Scope::Enum, _) => {
                let end = self.end_of_statement();
                let assigned = (self.next + 1..end).find(|&at| self.tokens.text(at) == Some("="));
                if let Some(assigned) = assigned {
                    let name = self.tokens.text(assigned - 1).unwrap_or_default();
                    let ahead = assigned - 1 - self.next;
                    self.declare(format!("{prefix}{name}"), ahead, self.head(end));
                }
                self.next = end;
                return;
            }
        };
        self.declare(name.clone(), 1, self.next + 2);
        self.next += 3;
        self.body(inner, &format!("{name}."));
    }

    fn text(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.text(self.next + ahead)
    }

    fn kind(&self, ahead: usize) -> Option<TokenKind> {
        Some(self.tokens.tokens.get(self.next + ahead)?.kind)
    }

    /// Behind its semicolon, or behind the block that ends it.
    fn end_of_statement(&self) -> usize {
        let is_option = self.text(0) == Some("option");
        let mut depth = 0_u32;
        for (at, token) in self.tokens.tokens.iter().enumerate().skip(self.next) {
            match token.text {
                "{" | "[" | "(" => depth += 1,
                // The brace of the block around it, which it does not end before.
                "}" | "]" | ")" if depth == 0 => return at,
                "]" | ")" => depth -= 1,
                "}" => {
                    depth -= 1;
                    // The value of an option may be a block, and a semicolon follows.
                    if depth == 0 && !is_option {
                        return at + 1;
                    }
                }
                ";" if depth == 0 => return at + 1,
                _ => {}
            }
        }
        self.tokens.tokens.len()
    }

    /// The first brace or semicolon of the statement before `end`: a comment may follow it.
    fn head(&self, end: usize) -> usize {
        let is_end = |&at: &usize| matches!(self.tokens.text(at), Some("{" | ";"));
        (self.next..end).find(is_end).unwrap_or(self.next)
    }

    fn declare(&mut self, name: String, ahead: usize, head: usize) {
        let Some(token) = self.tokens.tokens.get(self.next + ahead) else {
            return;
        };
        let position = token.position;
        let first_line = self.tokens.tokens[self.next].position.line;
        let head_line = self.tokens.tokens.get(head).map(|head| head.position.line);
        let comments = &self.tokens.comments;
        let mut lines = lines_before(comments, first_line);
        if lines.is_empty() {
            let beside =
                |comment: &&Comment<'_>| !comment.is_alone && Some(comment.first_line) == head_line;
            lines = comments.iter().find(beside).map_or_else(Vec::new, lines_of);
        }
        let docs = documentation(&lines);
        match self.found.by_name.entry(name) {
            Entry::Occupied(first) => self.found.twice.push((first.key().clone(), position)),
            Entry::Vacant(first) => {
                first.insert(Declaration { position, docs });
            }
        }
    }
}

/// The comment that ends on the line before this one: of several, only the last block, or the last
/// lines without a gap. What stands further above is about something else, a licence for example.
fn lines_before<'a>(comments: &[Comment<'a>], line: u32) -> Vec<&'a str> {
    let mut found: Vec<&Comment<'a>> = Vec::new();
    let mut line = line;
    for comment in comments.iter().rev() {
        if comment.last_line >= line {
            continue;
        }
        let joins = found.is_empty() || comment.kind == CommentKind::Line;
        if comment.last_line + 1 != line || !comment.is_alone || !joins {
            break;
        }
        found.push(comment);
        line = comment.first_line;
        if comment.kind == CommentKind::Block {
            break;
        }
    }
    found
        .iter()
        .rev()
        .flat_map(|comment| lines_of(comment))
        .collect()
}

fn lines_of<'a>(comment: &Comment<'a>) -> Vec<&'a str> {
    match comment.kind {
        CommentKind::Line => vec![comment.text.trim_start_matches('/')],
        CommentKind::Block => {
            let text = comment.text.trim_start_matches('*');
            let mut lines = text.lines();
            let first = lines.next().unwrap_or_default();
            // A line that begins with a star has its text behind it; one that does not is all text.
            let rest = lines.map(|line| {
                let trimmed = line.trim_start();
                trimmed.strip_prefix('*').unwrap_or(line)
            });
            std::iter::once(first).chain(rest).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docs_in(text: &str) -> impl Fn(&str) -> String {
        let found = Declarations::of(&Tokens::of(text));
        move |name| found.docs(name).join("\n")
    }

    #[test]
    fn a_comment_belongs_to_what_follows_it_without_a_gap_or_stands_before_it_on_its_line() {
        let docs = docs_in(
            "// A licence.\n\n// Says what it hears,\n// at once.\nservice Echo { // not this\n\
             \n  rpc Say(Text) returns (Text); // Says it.\n  /* Twice.\n   * Or more. */\n\
             \n  rpc Far(T) returns (T) { option deprecated = true; }\n\
             /** Stars.\n * And more. */\nrpc Near(T) returns (T) {}\n\
             rpc None(T) returns (T);\n}\n",
        );
        assert_eq!(docs("Echo"), "Says what it hears,\nat once.");
        assert_eq!(docs("Echo.Say"), "Says it.");
        assert_eq!(docs("Echo.Far"), "");
        assert_eq!(docs("Echo.Near"), "Stars.\nAnd more.");
        assert_eq!(docs("Echo.None"), "");
    }

    #[test]
    fn names_are_found_in_all_that_has_names() {
        let text = "syntax = 'proto3'; option (x) = { rpc: 1 };\nmessage A { reserved 4, 5;\n\
             oneof b { string c = 1 [(d) = { e: 'f' }]; }\n map<string, A> g = 2; message H { A i = 1; }\n\
             enum J { K = 0; } }\nextend A { string l = 3; }\nservice M { option (x) = { y: 1 };\n\
             rpc N(A) returns (stream A) { option (x) = { z: 1 }; } rpc O(A) returns (A); }\nenum P { Q = 0; }";
        let found = Declarations::of(&Tokens::of(text));
        let mut names: Vec<_> = found.by_name.keys().map(String::as_str).collect();
        names.sort_unstable();
        let all = [
            "A", "A.H", "A.H.i", "A.J", "A.J.K", "A.b", "A.c", "A.g", "M", "M.N", "M.O", "P", "P.Q",
        ];
        assert_eq!(names, all);
        assert_eq!(found.twice, []);
    }

    #[test]
    fn what_is_declared_twice_is_told_with_its_second_place() {
        let text = "service A { rpc B(C) returns (C);\n rpc B(C) returns (C); }";
        let found = Declarations::of(&Tokens::of(text));
        assert_eq!(
            found.twice,
            [("A.B".to_owned(), Position { line: 2, column: 6 })]
        );
    }
}
