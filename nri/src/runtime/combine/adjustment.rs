//! The adjustment of a container that is being created, field by field.

use super::keyed::{Keyed, Wishes, apply, apply_env, apply_map, collect, collect_map};
use super::owners::{Claims, Conflict};
use super::resources::{self, claim_set, replace, replace_text};
use crate::api::{
    Container, ContainerAdjustment, Field, Hooks, LinuxContainer, LinuxContainerAdjustment,
    LinuxRdt,
};

/// Claims all that is set, and gives up what is removed.
pub(super) fn claim(
    adjustment: &ContainerAdjustment,
    claims: &mut Claims<'_>,
) -> Result<(), Conflict> {
    let annotations = Wishes::of_map(&adjustment.annotations);
    claim_wishes(Field::Annotations, &annotations, claims)?;
    claim_list(Field::Mounts, &adjustment.mounts, claims)?;
    claim_list(Field::Env, &adjustment.env, claims)?;
    if let Some(first) = adjustment.args.first() {
        // An empty one in front says: whatever others have set.
        if first.is_empty() {
            claims.remove(Field::Args, None);
        }
        claims.simple(Field::Args)?;
    }
    if adjustment.hooks.as_ref().is_some_and(has_hooks) {
        claims.share(Field::OciHooks);
    }
    if let Some(linux) = adjustment.linux.as_ref() {
        claim_linux(linux, claims)?;
    }
    for limit in &adjustment.rlimits {
        claims.entry(Field::Rlimits, &limit.type_)?;
    }
    for device in &adjustment.CDI_devices {
        claims.entry(Field::CdiDevices, &device.name)?;
    }
    Ok(())
}

fn claim_linux(linux: &LinuxContainerAdjustment, claims: &mut Claims<'_>) -> Result<(), Conflict> {
    claim_list(Field::Devices, &linux.devices, claims)?;
    if let Some(resources) = linux.resources.as_ref() {
        resources::claim(resources, claims)?;
    }
    claim_set(
        claims,
        &[
            (Field::CgroupsPath, !linux.cgroups_path.is_empty()),
            (Field::OomScoreAdj, linux.oom_score_adj.is_some()),
            (Field::IoPriority, linux.io_priority.is_some()),
            (Field::SeccompPolicy, linux.seccomp_policy.is_some()),
            (Field::LinuxSched, linux.scheduler.is_some()),
            (Field::MemoryPolicy, linux.memory_policy.is_some()),
        ],
    )?;
    // A namespace that one plugin removes is not another's to set: it is claimed either way.
    for namespace in &linux.namespaces {
        claims.entry(Field::Namespace, namespace.key())?;
    }
    claim_wishes(Field::Sysctl, &Wishes::of_map(&linux.sysctl), claims)?;
    let net_devices = Wishes::of_map(&linux.net_devices);
    claim_wishes(Field::LinuxNetDevices, &net_devices, claims)?;
    if let Some(rdt) = linux.rdt.as_ref() {
        let fields = [
            (Field::RdtClosID, rdt.clos_id.is_some()),
            (Field::RdtSchemata, rdt.schemata.is_some()),
            (Field::RdtEnableMonitoring, rdt.enable_monitoring.is_some()),
        ];
        if rdt.remove {
            for (field, _) in fields {
                claims.remove(field, None);
            }
        }
        claim_set(claims, &fields)?;
    }
    Ok(())
}

fn claim_list<T: Keyed>(
    field: Field,
    entries: &[T],
    claims: &mut Claims<'_>,
) -> Result<(), Conflict> {
    for key in Wishes::of_list(entries).removed {
        claims.remove(field, Some(key));
    }
    // The list and not the set of its keys: one that names a key twice contradicts itself.
    for entry in entries.iter().filter(|entry| !entry.is_removal()) {
        claims.entry(field, entry.key())?;
    }
    Ok(())
}

fn claim_wishes(
    field: Field,
    wishes: &Wishes<'_>,
    claims: &mut Claims<'_>,
) -> Result<(), Conflict> {
    for key in &wishes.removed {
        claims.remove(field, Some(key));
    }
    for key in &wishes.set {
        claims.entry(field, key)?;
    }
    Ok(())
}

/// Adds one plugin's adjustment to those before it.
pub(super) fn add(from: &ContainerAdjustment, into: &mut ContainerAdjustment) {
    collect_map(&from.annotations, &mut into.annotations);
    collect(&from.mounts, &mut into.mounts);
    collect(&from.env, &mut into.env);
    replace_args(&from.args, &mut into.args);
    if let Some(hooks) = from.hooks.as_ref().filter(|hooks| has_hooks(hooks)) {
        add_hooks(hooks, into.hooks.mut_or_insert_default());
    }
    into.rlimits.extend(from.rlimits.iter().cloned());
    into.CDI_devices.extend(from.CDI_devices.iter().cloned());
    if let Some(from) = from.linux.as_ref() {
        add_linux(from, into.linux.mut_or_insert_default());
    }
}

fn add_linux(from: &LinuxContainerAdjustment, into: &mut LinuxContainerAdjustment) {
    collect(&from.devices, &mut into.devices);
    if let Some(from) = from.resources.as_ref() {
        resources::overlay(from, into.resources.mut_or_insert_default());
    }
    replace_text(&from.cgroups_path, &mut into.cgroups_path);
    replace(&from.oom_score_adj, &mut into.oom_score_adj);
    replace(&from.io_priority, &mut into.io_priority);
    replace(&from.seccomp_policy, &mut into.seccomp_policy);
    replace(&from.scheduler, &mut into.scheduler);
    replace(&from.memory_policy, &mut into.memory_policy);
    into.namespaces.extend(from.namespaces.iter().cloned());
    collect_map(&from.sysctl, &mut into.sysctl);
    collect_map(&from.net_devices, &mut into.net_devices);
    if let Some(from) = from.rdt.as_ref() {
        overlay_rdt(from, into.rdt.mut_or_insert_default());
    }
}

/// Makes the container what it will be, for the plugins that are asked next.
pub(super) fn apply_to(from: &ContainerAdjustment, container: &mut Container) {
    apply_map(&from.annotations, &mut container.annotations);
    apply(&from.mounts, &mut container.mounts);
    apply_env(&from.env, &mut container.env);
    replace_args(&from.args, &mut container.args);
    if let Some(hooks) = from.hooks.as_ref().filter(|hooks| has_hooks(hooks)) {
        add_hooks(hooks, container.hooks.mut_or_insert_default());
    }
    for limit in &from.rlimits {
        container
            .rlimits
            .retain(|before| before.type_ != limit.type_);
        container.rlimits.push(limit.clone());
    }
    if let Some(from) = from.linux.as_ref() {
        apply_linux(from, container.linux.mut_or_insert_default());
    }
}

fn apply_linux(from: &LinuxContainerAdjustment, into: &mut LinuxContainer) {
    apply(&from.devices, &mut into.devices);
    if let Some(from) = from.resources.as_ref() {
        resources::overlay(from, into.resources.mut_or_insert_default());
    }
    replace_text(&from.cgroups_path, &mut into.cgroups_path);
    replace(&from.oom_score_adj, &mut into.oom_score_adj);
    replace(&from.io_priority, &mut into.io_priority);
    replace(&from.seccomp_policy, &mut into.seccomp_policy);
    replace(&from.scheduler, &mut into.scheduler);
    apply(&from.namespaces, &mut into.namespaces);
    apply_map(&from.sysctl, &mut into.sysctl);
    apply_map(&from.net_devices, &mut into.net_devices);
    if let Some(from) = from.rdt.as_ref() {
        let into = into.rdt.mut_or_insert_default();
        overlay_rdt(from, into);
        into.remove = false;
    }
}

/// A removal that is followed by something is no removal any more.
fn overlay_rdt(from: &LinuxRdt, into: &mut LinuxRdt) {
    if from.remove {
        *into = LinuxRdt::new();
        into.remove = true;
    }
    if from.clos_id.is_some() || from.schemata.is_some() || from.enable_monitoring.is_some() {
        into.remove = false;
    }
    replace(&from.clos_id, &mut into.clos_id);
    replace(&from.schemata, &mut into.schemata);
    replace(&from.enable_monitoring, &mut into.enable_monitoring);
}

fn replace_args(from: &[String], into: &mut Vec<String>) {
    let args = match from.split_first() {
        None => return,
        Some((first, rest)) if first.is_empty() => rest,
        Some(_) => from,
    };
    args.clone_into(into);
}

fn has_hooks(hooks: &Hooks) -> bool {
    *hooks != Hooks::new()
}

fn add_hooks(from: &Hooks, into: &mut Hooks) {
    into.prestart.extend(from.prestart.iter().cloned());
    into.create_runtime
        .extend(from.create_runtime.iter().cloned());
    into.create_container
        .extend(from.create_container.iter().cloned());
    into.start_container
        .extend(from.start_container.iter().cloned());
    into.poststart.extend(from.poststart.iter().cloned());
    into.poststop.extend(from.poststop.iter().cloned());
}
