//! Comments of `.proto` files as documentation of Rust.
//!
//! They were not written as Markdown. Carried over as they are they would be links to nothing, HTML,
//! and code that `cargo test` runs: each of these is a warning or a failure in the crate of whoever
//! generates.

/// Lines behind `/// `, from lines behind `//`.
pub(crate) fn documentation(comment: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // How far the text of the list's item that goes on is from the margin.
    let mut item = 0;
    let mut in_code = false;
    for line in comment {
        let line: String = line.chars().filter_map(plain).collect();
        let text = line.trim();
        if text.starts_with("```") {
            in_code = !in_code;
            // Without a language it would be a test in Rust.
            lines.push(if in_code { "```text" } else { "```" }.to_owned());
        } else if in_code {
            let line = line.trim_end();
            lines.push(line.strip_prefix(' ').unwrap_or(line).to_owned());
        } else if text.is_empty() {
            item = 0;
            if lines.last().is_some_and(|last| !last.is_empty()) {
                lines.push(String::new());
            }
        } else {
            let marker = marker_of(text);
            let margin = if marker > 0 { 0 } else { item };
            item = if marker > 0 { marker } else { item };
            lines.push(format!("{:margin$}{}", "", escaped(text)));
        }
    }
    if in_code {
        lines.push("```".to_owned());
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Characters that change the direction of text are refused by the compiler in a comment, and a
/// lone carriage return too.
fn plain(c: char) -> Option<char> {
    match c {
        '\t' | '\r' => Some(' '),
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => None,
        c if c.is_control() => None,
        c => Some(c),
    }
}

/// The length of what makes a line an item of a list, with its space; 0 if nothing does.
fn marker_of(text: &str) -> usize {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let marker = match text.as_bytes().get(digits) {
        Some(b'-' | b'*' | b'+') if digits == 0 => 1,
        Some(b'.' | b')') if (1..=9).contains(&digits) => digits + 1,
        _ => return 0,
    };
    if text[marker..].starts_with(' ') {
        let rest = &text[marker..];
        marker + (rest.len() - rest.trim_start().len()).min(4)
    } else {
        0
    }
}

/// Takes the meaning from what would be a link, a quotation or HTML, but not within `code`.
fn escaped(text: &str) -> String {
    // An odd one has no other end.
    let has_code = text.matches('`').count() % 2 == 0;
    let mut result = String::with_capacity(text.len());
    let mut in_code = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let url = url_of(rest);
        if !in_code && url > 0 {
            result.push('<');
            result.push_str(&rest[..url]);
            result.push('>');
            rest = &rest[url..];
            continue;
        }
        in_code ^= c == '`' && has_code;
        let has_meaning = matches!(c, '[' | ']' | '<' | '>' | '\\') || (c == '`' && !has_code);
        if has_meaning && !in_code {
            result.push('\\');
        }
        result.push(c);
        rest = &rest[c.len_utf8()..];
    }
    result
}

/// The length of an address at the beginning of a text, without what ends its sentence.
fn url_of(text: &str) -> usize {
    if !text.starts_with("http://") && !text.starts_with("https://") {
        return 0;
    }
    let ends = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '`' | '"' | ')' | ']');
    let end = text.find(ends).unwrap_or(text.len());
    text[..end]
        .trim_end_matches(['.', ',', ';', ':', '!', '?'])
        .len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(comment: &str) -> String {
        documentation(&comment.lines().collect::<Vec<_>>()).join("\n")
    }

    #[test]
    fn what_markdown_would_read_otherwise_is_escaped() {
        assert_eq!(of(" a [b] c<d> `e[0]<f>`"), "a \\[b\\] c\\<d\\> `e[0]<f>`");
        assert_eq!(of(" > a ` b"), "\\> a \\` b");
        assert_eq!(
            of(" see https://a.example/b_[c]."),
            "see <https://a.example/b_[c>\\]."
        );
    }

    #[test]
    fn indented_and_fenced_text_is_no_test_in_rust() {
        assert_eq!(of("  a\n      b\n\tc"), "a\nb\nc");
        assert_eq!(of(" ```\n   a < b\n ```\n c"), "```text\n  a < b\n```\nc");
        assert_eq!(of(" ```rust\n a"), "```text\na\n```");
    }

    #[test]
    fn items_of_lists_go_on_under_their_text() {
        assert_eq!(
            of(" - a\nb\n 10. c\n d\n\n e"),
            "- a\n  b\n10. c\n    d\n\ne"
        );
        assert_eq!(of(" -a\n b"), "-a\nb");
    }

    #[test]
    fn empty_lines_around_and_in_a_row_are_left_out() {
        assert_eq!(of("\n\n a\n\n\n b\n\n"), "a\n\nb");
    }

    #[test]
    fn characters_that_the_compiler_refuses_are_left_out() {
        assert_eq!(of("a\u{202e}b\u{7}c\rd"), "abc d");
    }
}
