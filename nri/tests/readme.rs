//! The plugin in the README is the one in the documentation, which is run.

#![allow(
    clippy::unwrap_used,
    reason = "a test says what it expects by panicking"
)]

/// The lines between the first pair of these fences.
fn block<'a>(lines: impl Iterator<Item = &'a str>, fence: &str) -> Vec<&'a str> {
    lines
        .skip_while(|line| *line != fence)
        .skip(1)
        .take_while(|line| *line != "```")
        .collect()
}

#[test]
fn the_plugin_of_the_readme_is_that_of_the_documentation() {
    let readme = block(include_str!("../README.md").lines(), "```rust");
    let documentation = include_str!("../src/plugin/mod.rs").lines();
    let documentation = documentation.filter_map(|line| line.strip_prefix("///"));
    let documentation = documentation.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let documentation = block(documentation, "```");
    let hidden = |line: &&str| *line != "#" && !line.starts_with("# ");
    let documentation: Vec<&str> = documentation.into_iter().filter(hidden).collect();
    assert!(!readme.is_empty());
    assert_eq!(readme, documentation);
    assert!(readme.len() <= 33, "{} lines", readme.len());
}
