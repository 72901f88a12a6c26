//! Plugins that the runtime starts. They are processes, so time is real here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use ttrpc_keepalive_nri::api::ContainerAdjustment;
use ttrpc_keepalive_nri::runtime::{Runtime, StartError};
use ttrpc_keepalive_nri::{Plugin, RuntimeInfo};

use crate::support::{Node, container, env, pod};

fn executable(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits until a plugin has written that, for longer than any machine takes to start one.
async fn written(path: &Path) -> String {
    for _ in 0..600 {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("{} is not written", path.display())
}

#[tokio::test]
async fn a_plugin_that_is_started_finds_its_name_and_its_connection() {
    let folder = TempDir::new().unwrap();
    let told = folder.path().join("told");
    let says = "$NRI_PLUGIN_IDX $NRI_PLUGIN_NAME $NRI_PLUGIN_SOCKET $HOME";
    let descriptor = "$(/bin/readlink /proc/$$/fd/3) $(/bin/readlink /proc/$$/fd/4)";
    let script = format!("echo \"{says} {descriptor}\" > {}", told.display());
    let plugins = folder.path().join("plugins");
    fs::create_dir(&plugins).unwrap();
    executable(&plugins, "10-devices", &script);
    fs::write(plugins.join("README"), "not a plugin").unwrap();
    let runtime = Runtime::builder("test", "1")
        .plugins(&plugins)
        .start()
        .await
        .unwrap();
    let told = written(&told).await;
    assert!(told.starts_with("10 devices 3  socket:["), "{told}");
    // It inherits nothing else.
    assert!(told.trim_end().ends_with(']'), "{told}");
    assert!(runtime.plugins().is_empty());
}

/// Played by the process that the next test has its runtime start.
#[tokio::test]
#[ignore = "it is a plugin, and no test"]
async fn plays_a_plugin() {
    let plugin = Plugin::new("99", "nobody", Arc::new(()))
        .configure(|_, _, info: RuntimeInfo| async move {
            assert_eq!(info.config, "a: configuration");
            Ok(None)
        })
        .create_container(|_, _, _| async {
            let mut adjustment = ContainerAdjustment::new();
            adjustment.add_env("STARTED", "by the runtime");
            Ok(adjustment)
        });
    plugin.once().run().await.unwrap();
}

#[tokio::test]
async fn a_plugin_that_is_started_is_configured_and_served() {
    let folder = TempDir::new().unwrap();
    let (plugins, configurations) = (folder.path().join("plugins"), folder.path().join("conf"));
    fs::create_dir(&plugins).unwrap();
    fs::create_dir(&configurations).unwrap();
    fs::write(configurations.join("started.conf"), "a: configuration").unwrap();
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "exec {} --ignored --exact launching::plays_a_plugin",
        own.display()
    );
    executable(&plugins, "10-started", &script);
    let builder = Runtime::builder("test", "1").plugins(&plugins);
    let mut node = Node::start(builder.configurations(&configurations)).await;
    node.until("10-started serving").await;
    let created = node
        .runtime
        .create_container(pod("p"), container("c"))
        .await;
    assert_eq!(env(&created.unwrap()), ["STARTED=by the runtime"]);
}

#[tokio::test]
async fn a_file_that_is_not_called_as_a_plugin_is_keeps_the_runtime_from_starting() {
    let folder = TempDir::new().unwrap();
    executable(folder.path(), "devices", "");
    let failed = Runtime::builder("test", "1")
        .plugins(folder.path())
        .start()
        .await;
    let failed = failed.unwrap_err();
    assert!(matches!(failed, StartError::Name { .. }), "{failed}");
    assert!(
        failed
            .to_string()
            .ends_with("not of the form 10-name: \"devices\""),
        "{failed}"
    );
}

#[tokio::test]
async fn a_folder_of_plugins_that_does_not_exist_is_an_empty_one() {
    let folder = TempDir::new().unwrap();
    let runtime = Runtime::builder("test", "1").plugins(folder.path().join("none"));
    assert!(runtime.start().await.unwrap().plugins().is_empty());
}

#[tokio::test]
async fn the_socket_and_its_folder_are_for_this_user_alone() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("nri/nri.sock");
    let path = socket.display().to_string();
    let runtime = Runtime::builder("test", "1").listen(&path).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
    // One that runs is not displaced, one that was killed is.
    assert!(Runtime::builder("test", "1").listen(&path).await.is_err());
    drop(runtime);
}
