//! What plugins do to containers, as verbs of the messages.

use protobuf::MessageField;

use crate::api::*;

/// A name as it stands in an adjustment for what is to be removed. A plugin that removes what another
/// one has set may set it anew, which would be a conflict otherwise.
pub fn removal(name: &str) -> String {
    format!("-{name}")
}

impl ContainerAdjustment {
    /// Sets an annotation.
    pub fn add_annotation(&mut self, key: &str, value: &str) {
        self.annotations.insert(key.to_owned(), value.to_owned());
    }

    /// Removes an annotation.
    pub fn remove_annotation(&mut self, key: &str) {
        self.annotations.insert(removal(key), String::new());
    }

    /// Sets an environment variable.
    pub fn add_env(&mut self, key: &str, value: &str) {
        self.env.push(KeyValue {
            key: key.to_owned(),
            value: value.to_owned(),
            ..KeyValue::default()
        });
    }

    /// Removes an environment variable.
    pub fn remove_env(&mut self, key: &str) {
        self.add_env(&removal(key), "");
    }

    /// Adds a mount.
    pub fn add_mount(&mut self, mount: Mount) {
        self.mounts.push(mount);
    }

    /// Removes the mount at this path in the container.
    pub fn remove_mount(&mut self, destination: &str) {
        self.mounts.push(Mount {
            destination: removal(destination),
            ..Mount::default()
        });
    }

    /// Sets the command line. That another plugin has set it is a conflict.
    pub fn set_args<T: Into<String>>(&mut self, args: impl IntoIterator<Item = T>) {
        self.args = args.into_iter().map(Into::into).collect();
    }

    /// Sets the command line, whoever has set it before.
    pub fn replace_args<T: Into<String>>(&mut self, args: impl IntoIterator<Item = T>) {
        let args = args.into_iter().map(Into::into);
        self.args = [String::new()].into_iter().chain(args).collect();
    }

    /// Adds hooks to those that are there.
    pub fn add_hooks(&mut self, hooks: Hooks) {
        let own = self.hooks.mut_or_insert_default();
        own.prestart.extend(hooks.prestart);
        own.create_runtime.extend(hooks.create_runtime);
        own.create_container.extend(hooks.create_container);
        own.start_container.extend(hooks.start_container);
        own.poststart.extend(hooks.poststart);
        own.poststop.extend(hooks.poststop);
    }

    /// Sets a resource limit of processes, as `RLIMIT_NOFILE`.
    pub fn add_rlimit(&mut self, name: &str, hard: u64, soft: u64) {
        self.rlimits.push(POSIXRlimit {
            type_: name.to_owned(),
            hard,
            soft,
            ..POSIXRlimit::default()
        });
    }

    /// Adds a device node.
    pub fn add_device(&mut self, device: LinuxDevice) {
        self.linux_mut().devices.push(device);
    }

    /// Removes the device node at this path.
    pub fn remove_device(&mut self, path: &str) {
        self.add_device(LinuxDevice {
            path: removal(path),
            ..LinuxDevice::default()
        });
    }

    /// Adds a device by its name in the Container Device Interface, as `vendor.com/class=name`.
    pub fn add_cdi_device(&mut self, name: &str) {
        self.CDI_devices.push(CDIDevice {
            name: name.to_owned(),
            ..CDIDevice::default()
        });
    }

    /// Adds a namespace, or puts it in the place of the one of its kind.
    pub fn add_namespace(&mut self, namespace: LinuxNamespace) {
        self.linux_mut().namespaces.push(namespace);
    }

    /// Removes the namespace of this kind, as `network`.
    pub fn remove_namespace(&mut self, kind: &str) {
        self.add_namespace(LinuxNamespace {
            type_: removal(kind),
            ..LinuxNamespace::default()
        });
    }

    /// Moves a network device of the host into the container, under the name that it is given.
    pub fn add_net_device(&mut self, on_host: &str, device: LinuxNetDevice) {
        let devices = &mut self.linux_mut().net_devices;
        devices.insert(on_host.to_owned(), device);
    }

    /// Leaves a network device on the host.
    pub fn remove_net_device(&mut self, on_host: &str) {
        self.add_net_device(&removal(on_host), LinuxNetDevice::default());
    }

    /// Sets a parameter of the kernel.
    pub fn set_sysctl(&mut self, key: &str, value: &str) {
        let sysctl = &mut self.linux_mut().sysctl;
        sysctl.insert(key.to_owned(), value.to_owned());
    }

    /// Removes a parameter of the kernel.
    pub fn remove_sysctl(&mut self, key: &str) {
        self.set_sysctl(&removal(key), "");
    }

    /// Sets the score by which the kernel chooses whom to kill for memory.
    pub fn set_oom_score_adj(&mut self, score: i64) {
        self.linux_mut().oom_score_adj = MessageField::some(OptionalInt {
            value: score,
            ..OptionalInt::default()
        });
    }

    /// Sets the path of the container's cgroup.
    pub fn set_cgroups_path(&mut self, path: &str) {
        path.clone_into(&mut self.linux_mut().cgroups_path);
    }

    /// Sets the seccomp filter.
    pub fn set_seccomp_policy(&mut self, policy: LinuxSeccomp) {
        self.linux_mut().seccomp_policy = MessageField::some(policy);
    }

    /// Sets the priority of input and output.
    pub fn set_io_priority(&mut self, class: IOPrioClass, priority: i32) {
        self.linux_mut().io_priority = MessageField::some(LinuxIOPriority {
            class: class.into(),
            priority,
            ..LinuxIOPriority::default()
        });
    }

    /// Sets how the kernel schedules the container's first process.
    pub fn set_scheduler(&mut self, scheduler: LinuxScheduler) {
        self.linux_mut().scheduler = MessageField::some(scheduler);
    }

    /// Sets on which memory nodes the container allocates.
    pub fn set_memory_policy(&mut self, policy: LinuxMemoryPolicy) {
        self.linux_mut().memory_policy = MessageField::some(policy);
    }

    /// Sets classes of cache and memory bandwidth.
    pub fn set_rdt(&mut self, rdt: LinuxRdt) {
        self.linux_mut().rdt = MessageField::some(rdt);
    }

    /// The resources to be set: `adjustment.resources_mut().set_cpu_shares(512)`.
    pub fn resources_mut(&mut self) -> &mut LinuxResources {
        self.linux_mut().resources.mut_or_insert_default()
    }

    /// What is to be set on Linux.
    pub fn linux_mut(&mut self) -> &mut LinuxContainerAdjustment {
        self.linux.mut_or_insert_default()
    }
}

impl ContainerUpdate {
    /// Changes nothing yet, of the container with this id.
    pub fn of(container_id: &str) -> Self {
        Self {
            container_id: container_id.to_owned(),
            ..Self::default()
        }
    }

    /// The resources to be changed.
    pub fn resources_mut(&mut self) -> &mut LinuxResources {
        let linux = self.linux.mut_or_insert_default();
        linux.resources.mut_or_insert_default()
    }
}

macro_rules! setters {
    ($part:ident: $($(#[$docs:meta])* $setter:ident($field:ident: $value:ty) $optional:ident;)*) => {$(
        $(#[$docs])*
        pub fn $setter(&mut self, value: $value) {
            let optional = $optional { value, ..$optional::default() };
            self.$part.mut_or_insert_default().$field = MessageField::some(optional);
        }
    )*};
}

impl LinuxResources {
    setters! { memory:
        /// Limits memory, in bytes.
        set_memory_limit(limit: i64) OptionalInt64;
        /// Reserves memory, in bytes.
        set_memory_reservation(reservation: i64) OptionalInt64;
        /// Limits memory and swap together, in bytes.
        set_memory_swap(swap: i64) OptionalInt64;
        /// Limits memory of the kernel, in bytes.
        set_memory_kernel(kernel: i64) OptionalInt64;
        /// Limits the buffers of TCP, in bytes.
        set_memory_kernel_tcp(kernel_tcp: i64) OptionalInt64;
        /// How readily pages are swapped out, 0 to 100.
        set_memory_swappiness(swappiness: u64) OptionalUInt64;
        /// Whether processes stop for want of memory instead of being killed.
        set_memory_disable_oom_killer(disable_oom_killer: bool) OptionalBool;
        /// Whether memory counts for the groups above.
        set_memory_use_hierarchy(use_hierarchy: bool) OptionalBool;
    }

    setters! { cpu:
        /// The share of processors when all want them.
        set_cpu_shares(shares: u64) OptionalUInt64;
        /// The time on processors in each period, in microseconds.
        set_cpu_quota(quota: i64) OptionalInt64;
        /// The period of the quota, in microseconds.
        set_cpu_period(period: u64) OptionalUInt64;
        /// The real-time quota, in microseconds.
        set_cpu_realtime_runtime(realtime_runtime: i64) OptionalInt64;
        /// The period of the real-time quota, in microseconds.
        set_cpu_realtime_period(realtime_period: u64) OptionalUInt64;
    }

    /// The processors on which the container may run, as `0-3,7`.
    pub fn set_cpus(&mut self, cpus: &str) {
        cpus.clone_into(&mut self.cpu.mut_or_insert_default().cpus);
    }

    /// The memory nodes that the container may use, as `0-1`.
    pub fn set_mems(&mut self, mems: &str) {
        mems.clone_into(&mut self.cpu.mut_or_insert_default().mems);
    }

    /// Limits the number of processes.
    pub fn set_pids_limit(&mut self, limit: i64) {
        self.pids.mut_or_insert_default().limit = limit;
    }

    /// Limits pages of a size, as `2MB`, in bytes.
    pub fn add_hugepage_limit(&mut self, page_size: &str, limit: u64) {
        self.hugepage_limits.push(HugepageLimit {
            page_size: page_size.to_owned(),
            limit,
            ..HugepageLimit::default()
        });
    }

    /// Writes a value to a file of cgroup v2, as `memory.high`.
    pub fn add_unified(&mut self, file: &str, value: &str) {
        self.unified.insert(file.to_owned(), value.to_owned());
    }

    /// The class of block devices.
    pub fn set_blockio_class(&mut self, class: &str) {
        self.blockio_class = optional_text(class);
    }

    /// The class of cache and memory bandwidth.
    pub fn set_rdt_class(&mut self, class: &str) {
        self.rdt_class = optional_text(class);
    }

    /// Allows or denies devices: which kind and numbers (`None`: all), and what may be done of `rwm`.
    pub fn add_device_rule(&mut self, rule: LinuxDeviceCgroup) {
        self.devices.push(rule);
    }
}

fn optional_text(value: &str) -> MessageField<OptionalString> {
    MessageField::some(OptionalString {
        value: value.to_owned(),
        ..OptionalString::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_is_marked_by_its_name() {
        let mut adjustment = ContainerAdjustment::new();
        adjustment.remove_env("HOME");
        adjustment.remove_mount("/data");
        adjustment.remove_device("/dev/null");
        adjustment.remove_annotation("key");
        adjustment.remove_namespace("network");
        adjustment.remove_sysctl("kernel.domainname");
        adjustment.remove_net_device("eth0");
        assert_eq!(adjustment.env[0].key, "-HOME");
        assert_eq!(adjustment.mounts[0].destination, "-/data");
        assert!(adjustment.annotations.contains_key("-key"));
        let linux = adjustment.linux_mut();
        assert_eq!(linux.devices[0].path, "-/dev/null");
        assert_eq!(linux.namespaces[0].type_, "-network");
        assert!(linux.sysctl.contains_key("-kernel.domainname"));
        assert!(linux.net_devices.contains_key("-eth0"));
    }

    #[test]
    fn resources_are_set_alike_in_an_adjustment_and_in_an_update() {
        let mut adjustment = ContainerAdjustment::new();
        let mut update = ContainerUpdate::of("one");
        for resources in [adjustment.resources_mut(), update.resources_mut()] {
            resources.set_cpu_shares(512);
            resources.set_memory_limit(64 << 20);
            resources.set_cpus("0-1");
        }
        assert_eq!(adjustment.linux.resources, update.linux.resources);
        assert_eq!(update.linux.resources.cpu.shares.value, 512);
        assert_eq!(update.container_id, "one");
    }

    #[test]
    fn a_command_line_that_replaces_another_plugins_says_so() {
        let mut adjustment = ContainerAdjustment::new();
        adjustment.set_args(["a", "b"]);
        assert_eq!(adjustment.args, ["a", "b"]);
        adjustment.replace_args(["c"]);
        assert_eq!(adjustment.args, ["", "c"]);
    }
}
