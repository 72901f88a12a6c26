//! The page is what is compiled, and run, in `example`.

use std::fs;
use std::path::Path;

#[test]
fn the_page_has_the_example_as_it_is() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(folder.join(file)).expect("a file of this package");
    let page = read("README.md");
    for (language, file) in [
        ("proto", "example/proto/greeter.proto"),
        ("rust", "example/build.rs"),
        ("rust", "example/src/main.rs"),
    ] {
        let block = format!("```{language}\n{}```\n", read(file));
        assert!(page.contains(&block), "{file} is not in the page");
    }
}

#[test]
fn the_page_tells_a_mistake_as_it_is_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let proto = fs::read_to_string(folder.join("example/proto/greeter.proto"));
    let proto = proto.expect("a file of this package");
    let wrong = tempfile::TempDir::new().expect("a folder");
    let file = wrong.path().join("greeter.proto");
    fs::write(&file, proto.replacen("(Person)", "(Persn)", 1)).expect("a folder to write to");
    let codegen = ttrpc_keepalive_codegen::Codegen::new().input(&file);
    let error = codegen
        .write(wrong.path())
        .expect_err("there is no such type");
    let page = fs::read_to_string(folder.join("README.md")).expect("a file of this package");
    let told = error.to_string();
    let told = told.replace(&format!("{}", wrong.path().display()), "proto");
    assert!(page.contains(&told), "{told} is not in the page");
}
