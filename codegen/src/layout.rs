//! Writes Rust as rustfmt would, for the few forms that there are.

use std::fmt;

const MAX_WIDTH: usize = 100;
const MAX_IMPORT: usize = 98;
const MAX_GENERICS: usize = 96;
/// Beyond it rustfmt puts the arguments of a call below each other, and the links of a chain.
const CALL_WIDTH: usize = 60;

/// A type as it is written.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Plain(String),
    Generic(String, Vec<Self>),
    Tuple(Vec<Self>),
}

impl Type {
    pub(crate) fn plain(name: impl Into<String>) -> Self {
        Self::Plain(name.into())
    }

    /// A tuple that is wider is broken, though there may be room for it.
    fn is_flat(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Generic(_, parts) => parts.iter().all(Self::is_flat),
            Self::Tuple(_) => self.to_string().len() - "()".len() <= CALL_WIDTH,
        }
    }

    /// On several lines, the first without its indentation.
    fn broken(&self, indent: usize) -> String {
        let (open, parts, close) = match self {
            Self::Plain(_) => return self.to_string(),
            Self::Generic(name, parts) => (format!("{name}<"), parts, ">"),
            Self::Tuple(parts) => ("(".to_owned(), parts, ")"),
        };
        // What stands alone in its brackets is broken within them.
        if let (Self::Generic(..), [part @ Self::Tuple(_)]) = (self, parts.as_slice()) {
            return format!("{open}{}{close}", part.broken(indent));
        }
        let mut text = open;
        for part in parts {
            let flat = part.to_string();
            let fits = part.is_flat() && indent + 4 + flat.len() < MAX_WIDTH;
            let part = if fits { flat } else { part.broken(indent + 4) };
            text.push_str(&format!("\n{:1$}{part},", "", indent + 4));
        }
        text.push_str(&format!("\n{:indent$}{close}", ""));
        text
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, parts, close) = match self {
            Self::Plain(name) => return f.write_str(name),
            Self::Generic(name, parts) => (format!("{name}<"), parts, ">"),
            Self::Tuple(parts) => ("(".to_owned(), parts, ")"),
        };
        f.write_str(&open)?;
        for (at, part) in parts.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{part}")?;
        }
        f.write_str(close)
    }
}

/// `.function(argument, |closure| async move { call(call_arguments).await })`
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) function: &'static str,
    pub(crate) argument: String,
    /// To its opening brace.
    pub(crate) closure: String,
    pub(crate) call: String,
    pub(crate) call_arguments: String,
}

impl Link {
    /// Whether its closure may begin on its first line.
    fn is_short(&self) -> bool {
        self.argument.len() + ", ".len() + self.closure.len() <= CALL_WIDTH
    }
}

/// Lines with their indentation.
#[derive(Debug, Default)]
pub(crate) struct Code {
    text: String,
    indent: usize,
}

impl Code {
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        let (line, indent) = (line.as_ref(), self.indent);
        if !line.is_empty() {
            self.text.push_str(&format!("{:indent$}{line}", ""));
        }
        self.text.push('\n');
    }

    pub(crate) fn docs(&mut self, lines: &[String]) {
        for line in lines {
            self.line(format!("/// {line}").trim_end());
        }
    }

    /// What stands between `open`, which has a line, and its closing brace.
    pub(crate) fn block(&mut self, open: impl AsRef<str>, inner: impl FnOnce(&mut Self)) {
        self.line(open);
        self.indent += 4;
        inner(self);
        self.indent -= 4;
        self.line("}");
    }

    /// `use module::{A, B};`, with as many names in a line as fit.
    pub(crate) fn import(&mut self, module: &str, names: &[&str]) {
        if let [name] = names {
            return self.line(format!("use {module}::{name};"));
        }
        let flat = format!("use {module}::{{{}}};", names.join(", "));
        if flat.len() <= MAX_IMPORT {
            return self.line(flat);
        }
        self.line(format!("use {module}::{{"));
        let mut line = String::new();
        for name in names {
            if !line.is_empty() && 4 + line.len() + 1 + name.len() + 1 > MAX_WIDTH {
                self.line(format!("    {line}"));
                line.clear();
            }
            let space = if line.is_empty() { "" } else { " " };
            line.push_str(&format!("{space}{name},"));
        }
        self.line(format!("    {line}"));
        self.line("};");
    }

    /// A function from `head`, which ends before the parenthesis, to its opening brace.
    pub(crate) fn signature(&mut self, head: &str, arguments: &[String], result: &Type) {
        let flat = format!("{head}({}) -> {result} {{", arguments.join(", "));
        if result.is_flat() && self.fits(&flat) {
            return self.line(flat);
        }
        let is_plain = matches!(result, Type::Plain(_));
        let end = format!(") -> {result}");
        if self.indent + head.len() > MAX_GENERICS || (is_plain && !self.fits(&end)) {
            // There is nothing in it that could be broken and stay readable.
            self.line("#[rustfmt::skip]");
        }
        self.line(format!("{head}("));
        for argument in arguments {
            self.line(format!("    {argument},"));
        }
        // The indentation counts twice where nothing can be broken.
        let room = if is_plain { self.indent } else { 0 };
        if result.is_flat() && self.indent + end.len() + " {".len() + room <= MAX_WIDTH {
            self.line(format!("{end} {{"));
        } else if is_plain {
            self.line(end);
            self.line("{");
        } else {
            let broken = result.broken(self.indent);
            self.line(format!(") -> {broken} {{"));
        }
    }

    /// `pub const NAME: &str = "value";`
    pub(crate) fn text_constant(&mut self, name: &str, value: &str) {
        let flat = format!("pub const {name}: &str = \"{value}\";");
        if self.fits(&flat) {
            return self.line(flat);
        }
        self.line(format!("pub const {name}: &str ="));
        self.line(format!("    \"{value}\";"));
    }

    /// `receiver.function(arguments)` as the value of a block; the receiver is a field.
    pub(crate) fn method_call(&mut self, receiver: &str, function: &str, arguments: &[&str]) {
        let flat = arguments.join(", ");
        let call = format!("{receiver}.{function}({flat})");
        if flat.len() <= CALL_WIDTH && call.len() <= CALL_WIDTH {
            return self.line(call);
        }
        if flat.len() <= CALL_WIDTH {
            self.line(receiver);
            return self.line(format!("    .{function}({flat})"));
        }
        self.line(format!("{receiver}.{function}("));
        for argument in arguments {
            self.line(format!("    {argument},"));
        }
        self.line(")");
    }

    /// `function(arguments)` and calls on what it gives, as the value of a block.
    pub(crate) fn chain(&mut self, function: &str, arguments: [&str; 2], links: &[Link]) {
        let [first, second] = arguments;
        let flat = format!("{first}, {second}");
        if flat.len() > CALL_WIDTH {
            self.line(format!("{function}("));
            arguments
                .iter()
                .for_each(|argument| self.line(format!("    {argument},")));
            self.line(")");
            return links.iter().for_each(|link| self.link(".", link));
        }
        let made = format!("{function}({flat})");
        match links {
            [link] if !link.is_short() => self.link(&format!("{made}."), link),
            links => {
                self.line(made);
                self.indented(|code| links.iter().for_each(|link| code.link(".", link)));
            }
        }
    }

    fn link(&mut self, before: &str, link: &Link) {
        let Link {
            function,
            argument,
            closure,
            call,
            call_arguments,
        } = link;
        let called = format!("{call}({call_arguments})");
        if link.is_short() {
            self.line(format!("{before}{function}({argument}, {closure}"));
            self.line(format!("    {called}.await"));
            return self.line("})");
        }
        self.line(format!("{before}{function}("));
        self.indented(|code| {
            code.line(format!("{argument},"));
            let flat = format!("{closure} {called}.await }},");
            if code.fits(&flat) {
                return code.line(flat);
            }
            code.line(closure);
            code.indented(|code| {
                let flat = format!("{called}.await");
                if code.fits(&flat) {
                    code.line(flat);
                } else if code.fits(&called) {
                    code.line(called);
                    code.line("    .await");
                } else {
                    code.line(format!("{call}("));
                    code.line(format!("    {call_arguments},"));
                    code.line(")");
                    code.line(".await");
                }
            });
            code.line("},");
        });
        self.line(")");
    }

    pub(crate) fn fits(&self, line: &str) -> bool {
        self.indent + line.len() <= MAX_WIDTH
    }

    pub(crate) fn indented(&mut self, inner: impl FnOnce(&mut Self)) {
        self.indent += 4;
        inner(self);
        self.indent -= 4;
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
