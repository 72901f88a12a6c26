//! *Synchronize* in parts: a frame holds 4 MiB, and a node may have more to tell.

use protobuf::Message;

use crate::api::{Container, PodSandbox, SynchronizeRequest};

/// The size up to which a part is filled, in bytes. A frame's 4 MiB less what goes around the message:
/// service, method, metadata.
const PART: u64 = (4 << 20) - (64 << 10);

/// Distributes what a node has over as few messages as it takes, in order; at least one. All but the last
/// say that more comes.
pub(super) fn parts(pods: Vec<PodSandbox>, containers: Vec<Container>) -> Vec<SynchronizeRequest> {
    parts_of(PART, pods, containers)
}

fn parts_of(
    limit: u64,
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
) -> Vec<SynchronizeRequest> {
    let mut parts = vec![SynchronizeRequest::new()];
    let mut filled = 0;
    for pod in pods {
        room(&mut parts, &mut filled, limit, pod.compute_size())
            .pods
            .push(pod);
    }
    for container in containers {
        let part = room(&mut parts, &mut filled, limit, container.compute_size());
        part.containers.push(container);
    }
    let last = parts.len() - 1;
    for part in &mut parts[..last] {
        part.more = true;
    }
    parts
}

/// The part that has room for so many bytes, a new one if need be.
fn room<'a>(
    parts: &'a mut Vec<SynchronizeRequest>,
    filled: &mut u64,
    limit: u64,
    size: u64,
) -> &'a mut SynchronizeRequest {
    // Its tag and its length, which are no longer than that.
    let size = size + 10;
    if *filled > 0 && *filled + size > limit {
        parts.push(SynchronizeRequest::new());
        *filled = 0;
    }
    *filled += size;
    let last = parts.len() - 1;
    &mut parts[last]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(bytes: usize) -> PodSandbox {
        let mut pod = PodSandbox::new();
        pod.name = "p".repeat(bytes);
        pod
    }

    fn container(bytes: usize) -> Container {
        let mut container = Container::new();
        container.name = "c".repeat(bytes);
        container
    }

    #[test]
    fn a_node_without_anything_is_told_by_one_part() {
        let parts = parts(Vec::new(), Vec::new());
        assert_eq!(parts, [SynchronizeRequest::new()]);
    }

    proptest! {
        #[test]
        fn parts_hold_everything_in_order_and_each_fits(
            pods in prop::collection::vec(0_usize..90, 0..30),
            containers in prop::collection::vec(0_usize..90, 0..30),
        ) {
            let pods: Vec<_> = pods.into_iter().map(pod).collect();
            let containers: Vec<_> = containers.into_iter().map(container).collect();
            let parts = parts_of(200, pods.clone(), containers.clone());
            let (mut told_pods, mut told_containers) = (Vec::new(), Vec::new());
            for (place, part) in parts.iter().enumerate() {
                prop_assert!(part.compute_size() <= 200 + 2);
                prop_assert_eq!(part.more, place + 1 < parts.len());
                prop_assert!(parts.len() == 1 || !part.pods.is_empty() || !part.containers.is_empty());
                told_pods.extend(part.pods.iter().cloned());
                told_containers.extend(part.containers.iter().cloned());
            }
            prop_assert_eq!(told_pods, pods);
            prop_assert_eq!(told_containers, containers);
        }
    }
}
