//! From paths to descriptors: finds files and what they import, and says where a mistake is.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use protobuf::descriptor::FileDescriptorProto;
use protobuf_parse::pure::parse_dependencies;
use protobuf_parse::{Parser, ProtoPathBuf};

use crate::declarations::Declarations;
use crate::error::{Error, Position};
use crate::rust_types::is_of_runtime;
use crate::tokens::Tokens;

/// All files that are needed, each after those that it imports.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) files: Vec<Source>,
    /// Of all files, and of those that come with the parser.
    pub(crate) descriptors: Vec<FileDescriptorProto>,
}

#[derive(Debug)]
pub(crate) struct Source {
    /// As an import would name it.
    pub(crate) name: String,
    /// Where it was found.
    pub(crate) path: PathBuf,
    text: String,
    pub(crate) declarations: Declarations,
}

impl Source {
    fn error(&self, reason: impl Into<String>, position: Option<Position>) -> Error {
        Error::new(reason).in_file(&self.path).at(position)
    }

    pub(crate) fn position_of(&self, name: &str) -> Option<Position> {
        Some(self.declarations.get(name)?.position)
    }
}

impl Sources {
    pub(crate) fn load(inputs: &[PathBuf], includes: &[PathBuf]) -> Result<Self, Error> {
        let mut loading = Loading {
            includes: includes.iter().map(|include| plain(include)).collect(),
            files: Vec::new(),
            loaded: HashSet::new(),
            open: Vec::new(),
        };
        for input in inputs {
            loading.input(input)?;
        }
        let Loading {
            includes, files, ..
        } = loading;
        let inputs: Vec<_> = inputs.iter().map(|input| plain(input)).collect();
        let descriptors = match check(&inputs, &includes) {
            Ok(descriptors) => descriptors,
            // The message does not say which file it is about. Each comes after its imports, so the
            // first that fails alone is the one.
            Err(whole) => {
                let failed = files.iter().find_map(|file| {
                    let paths = [file.path.clone()];
                    let reason = check(&paths, &includes).err()?;
                    Some((file, reason))
                });
                return Err(match failed {
                    Some((file, reason)) => file.mistake(&reason),
                    None => Error::new(whole),
                });
            }
        };
        Ok(Self { files, descriptors })
    }

    pub(crate) fn descriptor(&self, name: &str) -> Option<&FileDescriptorProto> {
        self.descriptors.iter().find(|file| file.name() == name)
    }
}

struct Loading {
    includes: Vec<PathBuf>,
    files: Vec<Source>,
    loaded: HashSet<String>,
    /// Files whose imports are being loaded.
    open: Vec<String>,
}

impl Loading {
    fn input(&mut self, input: &Path) -> Result<(), Error> {
        let path = plain(input);
        let within = self.includes.iter().find_map(|include| {
            let is_here = include == Path::new(".") && path.is_relative();
            if is_here {
                Some(path.as_path())
            } else {
                path.strip_prefix(include).ok()
            }
        });
        let name = within.map(Path::to_owned);
        // A file outside of all folders for imports is found beside what it imports.
        let name = name.or_else(|| {
            let folder = path.parent()?;
            self.includes.push(plain(folder));
            Some(PathBuf::from(path.file_name()?))
        });
        let name = name.and_then(|name| ProtoPathBuf::from_path(&name).ok());
        let Some(name) = name.map(|name| name.to_string()) else {
            return Err(Error::new("this is no name for a file to import").in_file(input));
        };
        let text = fs::read_to_string(&path)
            .map_err(|error| Error::new("cannot be read").in_file(input).because(error))?;
        self.file(name, path, text)
    }

    fn file(&mut self, name: String, path: PathBuf, text: String) -> Result<(), Error> {
        if self.loaded.contains(&name) {
            return Ok(());
        }
        let parsed = parse_dependencies(&text).map_err(|error| {
            let position = Position {
                line: error.line,
                column: error.col,
            };
            let is_edition = Tokens::of(&text).text(0) == Some("edition");
            let reason = match error.error.to_string() {
                _ if is_edition => "editions cannot be read, only proto2 and proto3".to_owned(),
                reason if reason == "incorrect input" => "cannot be read from here".to_owned(),
                reason => reason,
            };
            Error::new(reason).in_file(&path).at(Some(position))
        })?;
        let tokens = Tokens::of(&text);
        let declarations = Declarations::of(&tokens);
        if let Some((name, position)) = declarations.twice.first() {
            let first = declarations
                .get(name)
                .map_or(0, |first| first.position.line);
            let reason = format!("`{name}` is declared a second time, after line {first}");
            return Err(Error::new(reason).in_file(&path).at(Some(*position)));
        }
        self.open.push(name.clone());
        for import in &parsed.dependency {
            self.import(import).map_err(|error| match error.file() {
                Some(_) => error,
                None => error.in_file(&path).at(tokens.position_of_text(import)),
            })?;
        }
        self.open.pop();
        self.loaded.insert(name.clone());
        self.files.push(Source {
            name,
            path,
            text,
            declarations,
        });
        Ok(())
    }

    /// An error without a file is one of the file that imports.
    fn import(&mut self, name: &str) -> Result<(), Error> {
        if let Some(first) = self.open.iter().position(|open| open == name) {
            // The parser would never come back.
            let way = self.open[first..].join("`, which imports `");
            return Err(Error::new(format!("`{way}` imports itself")));
        }
        if self.loaded.contains(name) {
            return Ok(());
        }
        for include in &self.includes {
            let path = include.join(name);
            match fs::read_to_string(&path) {
                Ok(text) => return self.file(name.to_owned(), path, text),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Error::new("cannot be read").in_file(&path).because(error));
                }
            }
        }
        // These come with the parser.
        if is_of_runtime(name) {
            return Ok(());
        }
        let folders = self
            .includes
            .iter()
            .map(|include| include.display().to_string());
        let folders = folders.collect::<Vec<_>>().join(", ");
        Err(Error::new(format!(
            "`{name}` is in none of the folders for imports: {folders}"
        )))
    }
}

/// Without the components that mean nothing, so that paths can be compared.
fn plain(path: &Path) -> PathBuf {
    let components = path.components();
    let plain: PathBuf = components
        .filter(|component| *component != Component::CurDir)
        .collect();
    if plain.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        plain
    }
}

impl Source {
    /// What a check of this file says, with the place of the name that it is about.
    fn mistake(&self, reason: &str) -> Error {
        // In quotes, or last: behind it may be where it was looked for.
        let quoted = reason.split('`').nth(1);
        let name = quoted
            .or_else(|| reason.rsplit(' ').next())
            .unwrap_or_default();
        let shown = name.trim_start_matches('.');
        let explained = if reason.starts_with("object is not found by path") {
            format!("there is no type `{shown}` in this file or in its imports")
        } else if reason.starts_with("Message `") {
            format!("`{shown}` is no message")
        } else {
            reason.to_owned()
        };
        self.error(explained, Tokens::of(&self.text).position_of(name))
    }
}

fn check(inputs: &[PathBuf], includes: &[PathBuf]) -> Result<Vec<FileDescriptorProto>, String> {
    let mut parser = Parser::new();
    parser.pure().includes(includes).inputs(inputs);
    let parsed = parser.parse_and_typecheck();
    let parsed = parsed.map_err(|error| error.root_cause().to_string())?;
    Ok(parsed.file_descriptors)
}
