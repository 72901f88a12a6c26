//! A runtime for trying a plugin: it has a container every second, and prints what plugins make of it.

#![allow(clippy::print_stdout, reason = "it is there to print")]

use ttrpc_keepalive_nri::api::{Container, ContainerAdjustment, PodSandbox};
use ttrpc_keepalive_nri::runtime::Runtime;

use crate::{LIMIT, PERIOD, Result};

/// Listens on this socket until it is interrupted. Pods have these annotations, each `key=value`.
pub(crate) async fn serve(socket: &str, annotations: &[&str]) -> Result<()> {
    let mut pod = PodSandbox::new();
    (pod.id, pod.name) = ("pod".to_owned(), "pod".to_owned());
    for annotation in annotations {
        let (key, value) = annotation.split_once('=').unwrap_or((annotation, ""));
        pod.annotations.insert(key.to_owned(), value.to_owned());
    }
    let there = vec![pod.clone()];
    let runtime = Runtime::builder("example", "1.0")
        .limit(LIMIT)
        .state(move || std::future::ready((there.clone(), Vec::new())))
        .update(|plugin, request| async move {
            for update in request.update {
                println!("update by {plugin}: {update}");
            }
            Ok(Vec::new())
        })
        .hook(|plugin, change| println!("{plugin}: {change}"))
        .listen(socket)
        .await?;
    println!("plugins may connect to {socket}");
    for number in 1.. {
        tokio::time::sleep(PERIOD).await;
        let mut container = Container::new();
        container.id = format!("container-{number}");
        container.name.clone_from(&container.id);
        let created = runtime.create_container(pod.clone(), container.clone());
        match created.await {
            Ok(created) if created.adjustment == ContainerAdjustment::new() => {
                println!("{}: as it is", container.name);
            }
            Ok(created) => println!("{}: {}", container.name, created.adjustment),
            Err(error) => {
                println!("{}: not created: {error}", container.name);
                continue;
            }
        }
        if let Err(error) = runtime.post_create_container(pod.clone(), container).await {
            println!("{error}");
        }
    }
    Ok(())
}
