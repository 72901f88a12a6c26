//! Whatever a plugin of the NRI crate answers, and what runtimes with Go's adaptation make of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use ttrpc_keepalive::{Code, Status};
use ttrpc_keepalive_nri::api::*;
use ttrpc_keepalive_nri::{EventContext, Late, Plugin};

use crate::Result;
use crate::nri_plugin::{Node, PATIENCE, RELEASES, Told};
use crate::report::{Report, World, claim};

pub(crate) async fn all(world: &World, report: &mut Report) {
    for release in RELEASES {
        let name = format!("Rust NRI plugin, Go NRI runtime {release}: errors in time");
        report.pairing(&name, errors(world, release)).await;
        let name = format!("Rust NRI plugin, Go NRI runtime {release}: failure policies");
        report.pairing(&name, policies(world, release)).await;
    }
    let name = "Rust NRI plugin, Go NRI runtime 0.12.5: does not know a call";
    report.pairing(name, unimplemented(world)).await;
}

/// Refuses what is called `error`.
fn refused(told: &Told, event: &str, id: &str) -> std::result::Result<(), Status> {
    told.got(event, id);
    match id {
        "error" => Err(Status::new(Code::PERMISSION_DENIED, "not this one")),
        _ => Ok(()),
    }
}

/// An error fails its event, whatever its code and the event are. Who answers it is kept, and plugins behind it
/// are not asked.
async fn errors(world: &World, release: &str) -> Result<String> {
    let mut node = Node::with(world, release, 0, |plugin| {
        plugin
            .create_container(Told::create)
            .stop_container(|told, _, event: StopContainerRequest| async move {
                refused(&told, "StopContainer", &event.container.id)
            })
            .remove_pod_sandbox(|told, _, event: RemovePodSandboxRequest| async move {
                refused(&told, "RemovePodSandbox", &event.pod.id)
            })
    })
    .await?;
    let behind = Plugin::new("20", "behind", Arc::clone(&node.told))
        .create_container(|told, _, event: CreateContainerRequest| async move {
            told.got("behind CreateContainer", &event.container.id);
            Ok(())
        })
        .stop_container(|told, _, event: StopContainerRequest| async move {
            told.got("behind StopContainer", &event.container.id);
            Ok(())
        })
        .remove_pod_sandbox(|told, _, event: RemovePodSandboxRequest| async move {
            told.got("behind RemovePodSandbox", &event.pod.id);
            Ok(())
        })
        .socket(&node.socket);
    let behind = tokio::spawn(behind.run());
    // Until it is asked too.
    loop {
        node.tell("CreateContainer probe").await?;
        node.event().await?;
        if let Ok(event) = timeout(Duration::from_millis(20), node.event()).await {
            let event = event?;
            claim!(event == "behind CreateContainer probe", "{event}");
            break;
        }
    }
    let events = [
        ("CreateContainer error", "not this one"),
        ("CreateContainer deadline", "no time for this one"),
        ("StopContainer error", "not this one"),
        ("RemovePodSandbox error", "not this one"),
    ];
    for (event, text) in events {
        let (became, took) = node.tell(event).await?;
        let fails = became.starts_with("failed: ") && became.contains(text) && took < 1.5;
        claim!(fails, "{event}: {became} after {took} s");
        let got = node.event().await?;
        claim!(got == event, "{got}");
        let (name, _) = event.split_once(' ').ok_or("no name")?;
        let good = format!("{name} good");
        node.tell(&good).await?;
        for expected in [good.clone(), format!("behind {good}")] {
            let got = node.event().await?;
            claim!(got == expected, "{got} and not {expected}");
        }
    }
    node.is_kept().await?;
    behind.abort();
    Ok(format!(
        "{} events fail, those behind are not asked, kept",
        events.len()
    ))
}

/// What a plugin asks for that is late all the same, and what each release makes of it.
async fn policies(world: &World, release: &str) -> Result<String> {
    let looks_at_it = release != "0.8.0";
    for (keep_connected, fail_request) in [(false, false), (false, true), (true, true)] {
        let policy = FailurePolicy {
            keep_connected,
            fail_request,
            ..FailurePolicy::default()
        };
        // Saying nothing is the same as asking for neither.
        let policy = Some(policy).filter(|policy| *policy != FailurePolicy::default());
        let mut node = Node::with(world, release, 0, |plugin| {
            plugin
                .create_container(Told::create)
                .late(Late::never())
                .failure_policy(policy)
        })
        .await?;
        let case = format!("keep {keep_connected}, fail {fail_request}");
        let (became, took) = node.tell("CreateContainer slow").await?;
        let fails = became.starts_with("failed: ");
        let as_asked = fails == (looks_at_it && fail_request) && (fails || became == "plain");
        claim!(as_asked && took > 1.9, "{case}: {became} after {took} s");
        if looks_at_it && keep_connected {
            node.is_kept().await?;
            continue;
        }
        let end = timeout(PATIENCE, node.ends.recv()).await?;
        let end = end.ok_or("the plugin is gone")?;
        claim!(end.starts_with("closed by the runtime"), "{case}: {end}");
        node.served().await?;
        node.is_kept().await?;
    }
    Ok(match looks_at_it {
        true => "fails and keeps as it is asked to".to_owned(),
        false => "drops, and looks at none".to_owned(),
    })
}

/// A plugin that answers one of nine calls with UNIMPLEMENTED is told of all of them by StateChange from then on.
async fn unimplemented(world: &World) -> Result<String> {
    let mut node = Node::with(world, "0.12.5", 0, |plugin| {
        let seen = |told: Arc<Told>, event: EventContext, id: String| async move {
            let method = event.call().method().to_owned();
            told.got(&method, &id);
            match &*method {
                "PostStartContainer" => Err(Status::new(Code::UNIMPLEMENTED, "not known")),
                _ => Ok(()),
            }
        };
        plugin
            .create_container(Told::create)
            .post_start_container(move |told, event, request: PostStartContainerRequest| {
                seen(told, event, request.container.id.clone())
            })
            .run_pod_sandbox(move |told, event, request: RunPodSandboxRequest| {
                seen(told, event, request.pod.id.clone())
            })
    })
    .await?;
    for (event, calls) in [
        ("RunPodSandbox first", &["RunPodSandbox first"][..]),
        (
            "PostStartContainer one",
            &["PostStartContainer one", "StateChange one"],
        ),
        ("PostStartContainer two", &["StateChange two"]),
        ("RunPodSandbox second", &["StateChange second"]),
    ] {
        let (became, _) = node.tell(event).await?;
        claim!(became == "told", "{event}: {became}");
        for call in calls {
            let got = node.event().await?;
            claim!(got == *call, "{event}: {got} and not {call}");
        }
    }
    node.is_kept().await?;
    Ok("told by StateChange, and so of all nine, kept".to_owned())
}
