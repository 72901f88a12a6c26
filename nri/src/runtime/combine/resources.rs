//! The resources of a container: who sets what, and what comes of it.

use protobuf::{Message, MessageField};

use super::owners::{Claims, Conflict};
use crate::api::{Field, LinuxCPU, LinuxMemory, LinuxResources};

/// Claims all that is set.
pub(super) fn claim(resources: &LinuxResources, claims: &mut Claims<'_>) -> Result<(), Conflict> {
    if let Some(memory) = resources.memory.as_ref() {
        claim_memory(memory, claims)?;
    }
    if let Some(cpu) = resources.cpu.as_ref() {
        claim_cpu(cpu, claims)?;
    }
    for limit in &resources.hugepage_limits {
        claims.entry(Field::HugepageLimits, &limit.page_size)?;
    }
    for key in resources.unified.keys() {
        claims.entry(Field::CgroupsUnified, key)?;
    }
    claim_set(
        claims,
        &[
            (Field::BlockioClass, resources.blockio_class.is_some()),
            (Field::RdtClass, resources.rdt_class.is_some()),
            (Field::PidsLimit, resources.pids.is_some()),
        ],
    )
}

fn claim_memory(memory: &LinuxMemory, claims: &mut Claims<'_>) -> Result<(), Conflict> {
    claim_set(
        claims,
        &[
            (Field::MemLimit, memory.limit.is_some()),
            (Field::MemReservation, memory.reservation.is_some()),
            (Field::MemSwapLimit, memory.swap.is_some()),
            (Field::MemKernelLimit, memory.kernel.is_some()),
            (Field::MemTCPLimit, memory.kernel_tcp.is_some()),
            (Field::MemSwappiness, memory.swappiness.is_some()),
            (
                Field::MemDisableOomKiller,
                memory.disable_oom_killer.is_some(),
            ),
            (Field::MemUseHierarchy, memory.use_hierarchy.is_some()),
        ],
    )
}

fn claim_cpu(cpu: &LinuxCPU, claims: &mut Claims<'_>) -> Result<(), Conflict> {
    claim_set(
        claims,
        &[
            (Field::CPUShares, cpu.shares.is_some()),
            (Field::CPUQuota, cpu.quota.is_some()),
            (Field::CPUPeriod, cpu.period.is_some()),
            (Field::CPURealtimeRuntime, cpu.realtime_runtime.is_some()),
            (Field::CPURealtimePeriod, cpu.realtime_period.is_some()),
            (Field::CPUSetCPUs, !cpu.cpus.is_empty()),
            (Field::CPUSetMems, !cpu.mems.is_empty()),
        ],
    )
}

pub(super) fn claim_set(claims: &mut Claims<'_>, fields: &[(Field, bool)]) -> Result<(), Conflict> {
    for (field, is_set) in fields {
        if *is_set {
            claims.simple(*field)?;
        }
    }
    Ok(())
}

/// Overlays what is set.
pub(super) fn overlay(from: &LinuxResources, into: &mut LinuxResources) {
    if let Some(from) = from.memory.as_ref() {
        let into = into.memory.mut_or_insert_default();
        replace(&from.limit, &mut into.limit);
        replace(&from.reservation, &mut into.reservation);
        replace(&from.swap, &mut into.swap);
        replace(&from.kernel, &mut into.kernel);
        replace(&from.kernel_tcp, &mut into.kernel_tcp);
        replace(&from.swappiness, &mut into.swappiness);
        replace(&from.disable_oom_killer, &mut into.disable_oom_killer);
        replace(&from.use_hierarchy, &mut into.use_hierarchy);
    }
    if let Some(from) = from.cpu.as_ref() {
        let into = into.cpu.mut_or_insert_default();
        replace(&from.shares, &mut into.shares);
        replace(&from.quota, &mut into.quota);
        replace(&from.period, &mut into.period);
        replace(&from.realtime_runtime, &mut into.realtime_runtime);
        replace(&from.realtime_period, &mut into.realtime_period);
        replace_text(&from.cpus, &mut into.cpus);
        replace_text(&from.mems, &mut into.mems);
    }
    for limit in &from.hugepage_limits {
        into.hugepage_limits
            .retain(|before| before.page_size != limit.page_size);
        into.hugepage_limits.push(limit.clone());
    }
    into.unified.extend(from.unified.clone());
    into.devices.extend(from.devices.iter().cloned());
    replace(&from.blockio_class, &mut into.blockio_class);
    replace(&from.rdt_class, &mut into.rdt_class);
    replace(&from.pids, &mut into.pids);
}

pub(super) fn replace<M: Message>(from: &MessageField<M>, into: &mut MessageField<M>) {
    if from.is_some() {
        into.clone_from(from);
    }
}

pub(super) fn replace_text(from: &str, into: &mut String) {
    if !from.is_empty() {
        from.clone_into(into);
    }
}
