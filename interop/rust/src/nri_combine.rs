//! What several plugins want of a container, combined by Go's runtime side and by ours: the same, for answers that
//! are made by chance.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protobuf::{Message, MessageField, MessageFull};
use ttrpc_keepalive::ByteStream;
use ttrpc_keepalive_nri::api::{
    Container, ContainerAdjustment, CreateContainerResponse, Hook, Hooks, LinuxDevice,
    LinuxNamespace, LinuxResources, Mount, OptionalString, POSIXRlimit, PodSandbox,
};
use ttrpc_keepalive_nri::runtime::Runtime;
use ttrpc_keepalive_nri::{Plugin, removal};

use crate::Result;
use crate::nri_messages::{base64, to_base64};
use crate::process::Process;
use crate::report::{Report, World, claim};

const CASES: u64 = 1000;

/// The answers of the case that is played, for three plugins.
type Answers = Arc<Mutex<Vec<CreateContainerResponse>>>;

pub(crate) async fn all(world: &World, report: &mut Report) {
    let name = "Go NRI runtime 0.12.5, Rust runtime: what three plugins want, combined";
    report.pairing(name, combined(world)).await;
}

async fn combined(world: &World) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let program = world.program("interop/go/nri-combine-0.12.5");
    let path = folder.path().display().to_string();
    let mut go = Process::start(&program, &[&path], &world.socket())?;
    let answers = Answers::default();
    let runtime = runtime(&answers).await?;
    let (mut made, mut conflicts) = (0, 0);
    for case in 0..CASES {
        let mut chance = Chance(case);
        let container = chance.container();
        let given: Vec<_> = (0..3).map(|_| chance.answer()).collect();
        let mut line = format!("={}", to_base64(&container.write_to_bytes()?));
        for answer in &given {
            line += &format!(" ={}", to_base64(&answer.write_to_bytes()?));
        }
        go.tell(&line).await?;
        let theirs = go.line().await?;
        given.clone_into(&mut answers.lock().unwrap_or_else(PoisonError::into_inner));
        let ours = runtime.create_container(PodSandbox::new(), container).await;
        match (theirs.split_once(' '), ours) {
            (Some(("conflict", _)), Err(_)) => conflicts += 1,
            (Some(("created", text)), Ok(ours)) => {
                let theirs = CreateContainerResponse::parse_from_bytes(&base64(text)?)?;
                let theirs = comparable(theirs.adjust.unwrap_or_default());
                let ours = comparable(ours.adjustment);
                claim!(
                    theirs == ours,
                    "case {case}: Go makes {theirs}, we make {ours}"
                );
                made += 1;
            }
            (_, ours) => return Err(format!("case {case}: {theirs} there, {ours:?} here").into()),
        }
    }
    claim!(
        made > 50 && conflicts > 50,
        "{made} made, {conflicts} conflicts"
    );
    Ok(format!(
        "{made} containers adjusted alike, {conflicts} conflicts on both sides"
    ))
}

/// A runtime with the three plugins.
async fn runtime(answers: &Answers) -> Result<Runtime> {
    let runtime = Runtime::builder("interop", "1.0").start().await?;
    for (place, name) in ["a", "b", "c"].into_iter().enumerate() {
        let (here, there) = tokio::io::duplex(64 << 10);
        let serving = runtime.clone();
        tokio::spawn(async move { serving.serve_plugin(ByteStream::new(here)).await });
        let plugin = Plugin::new(&format!("{}0", place + 1), name, Arc::clone(answers));
        let plugin = plugin.create_container(move |answers: Answers, _, _| async move {
            let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(answers[place].clone())
        });
        tokio::spawn(plugin.run_on(ByteStream::new(there)));
    }
    for _ in 0..1000 {
        let plugins = runtime.plugins();
        if plugins.len() == 3 && plugins.iter().all(|plugin| plugin.absence.is_none()) {
            return Ok(runtime);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("not all plugins are served".into())
}

/// An adjustment without what means nothing: messages without a field, and the order of lists. Go's leaves the
/// mark of what is removed beside what is set in its place, and has it twice if two plugins remove it.
fn comparable(mut adjustment: ContainerAdjustment) -> String {
    fn unmark<V>(entries: &mut HashMap<String, V>) {
        let set: BTreeSet<String> = entries.keys().map(|key| removal(key)).collect();
        entries.retain(|key, _| !set.contains(key));
    }
    unmark(&mut adjustment.annotations);
    let mounts = adjustment.mounts.iter();
    let set: BTreeSet<String> = mounts.map(|mount| removal(&mount.destination)).collect();
    adjustment
        .mounts
        .retain(|mount| !set.contains(&mount.destination));
    prune(&mut adjustment.hooks);
    adjustment.env.sort_by(|one, other| one.key.cmp(&other.key));
    adjustment
        .mounts
        .sort_by(|one, other| one.destination.cmp(&other.destination));
    adjustment.mounts.dedup();
    if let Some(linux) = adjustment.linux.as_mut() {
        unmark(&mut linux.sysctl);
        linux
            .devices
            .sort_by(|one, other| one.path.cmp(&other.path));
        prune(&mut linux.rdt);
        if let Some(resources) = linux.resources.as_mut() {
            prune(&mut resources.memory);
            prune(&mut resources.cpu);
        }
        prune(&mut linux.resources);
    }
    prune(&mut adjustment.linux);
    sorted(&adjustment)
}

/// As text, with the entries of maps in the order of their keys.
fn sorted(adjustment: &ContainerAdjustment) -> String {
    let mut annotations: Vec<_> = adjustment.annotations.iter().collect();
    annotations.sort();
    let linux = adjustment.linux.as_ref();
    let mut sysctl: Vec<_> = linux.into_iter().flat_map(|linux| &linux.sysctl).collect();
    sysctl.sort();
    let resources = linux.and_then(|linux| linux.resources.as_ref());
    let mut unified: Vec<_> = resources.into_iter().flat_map(|it| &it.unified).collect();
    unified.sort();
    let mut without = adjustment.clone();
    without.annotations.clear();
    if let Some(linux) = without.linux.as_mut() {
        linux.sysctl.clear();
        if let Some(resources) = linux.resources.as_mut() {
            resources.unified.clear();
            prune(&mut linux.resources);
        }
    }
    prune(&mut without.linux);
    let lists = protobuf::text_format::print_to_string(&without);
    format!("{lists} {annotations:?} {sysctl:?} {unified:?}")
}

fn prune<M: MessageFull>(field: &mut MessageField<M>) {
    if field.as_ref().is_some_and(|message| *message == M::new()) {
        field.take();
    }
}

/// Numbers by chance, the same for the same seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (value ^ (value >> 31)) % bound
    }

    /// One of so few that plugins meet now and then.
    fn key(&mut self) -> String {
        format!("/k{}", self.below(12))
    }

    fn container(&mut self) -> Container {
        let mut container = Container::new();
        container.id = "c".to_owned();
        for _ in 0..4 {
            container.env.push(format!("{}=old", self.key()));
            container.annotations.insert(self.key(), "old".to_owned());
            let mut mount = Mount::new();
            mount.destination = self.key();
            container.mounts.push(mount);
        }
        container
    }

    fn answer(&mut self) -> CreateContainerResponse {
        let mut adjustment = ContainerAdjustment::new();
        for _ in 0..self.below(5) {
            self.adjust(&mut adjustment);
        }
        let mut answer = CreateContainerResponse::new();
        answer.adjust = Some(adjustment).into();
        answer
    }

    /// Sets one thing, some of them whoever has set them before.
    fn adjust(&mut self, adjustment: &mut ContainerAdjustment) {
        let (key, value, anew) = (self.key(), self.below(1000), self.below(3) == 0);
        let text = value.to_string();
        let resources = |adjustment: &mut ContainerAdjustment,
                         set: &dyn Fn(&mut LinuxResources)| {
            let linux = adjustment.linux.mut_or_insert_default();
            set(linux.resources.mut_or_insert_default());
        };
        match self.below(14) {
            0 => {
                if anew {
                    adjustment.remove_env(&key);
                }
                adjustment.add_env(&key, &text);
            }
            1 => {
                if anew {
                    adjustment.remove_annotation(&key);
                }
                adjustment.add_annotation(&key, &text);
            }
            2 => {
                if anew {
                    adjustment.remove_mount(&key);
                }
                let mut mount = Mount::new();
                (mount.destination, mount.source) = (key, text);
                adjustment.add_mount(mount);
            }
            // Of a mount the removal alone stays visible there, too.
            3 => adjustment.remove_mount(&key),
            4 => {
                let linux = adjustment.linux.mut_or_insert_default();
                if anew {
                    linux.devices.push(device(&removal(&key), 0));
                }
                linux.devices.push(device(&key, value));
            }
            5 => {
                let linux = adjustment.linux.mut_or_insert_default();
                if anew {
                    linux.sysctl.insert(removal(&key), String::new());
                }
                linux.sysctl.insert(key, text);
            }
            6 => match anew {
                true => adjustment.replace_args([text]),
                false => adjustment.set_args([text]),
            },
            7 => {
                let mut hook = Hook::new();
                hook.path = text;
                let hooks: &mut Hooks = adjustment.hooks.mut_or_insert_default();
                hooks.prestart.push(hook);
            }
            8 => resources(adjustment, &|it| it.set_cpu_shares(value)),
            9 => resources(adjustment, &|it| {
                it.unified.insert(key.clone(), text.clone());
            }),
            10 => {
                let mut limit = POSIXRlimit::new();
                (limit.type_, limit.soft) = (key, value);
                adjustment.rlimits.push(limit);
            }
            11 => {
                let linux = adjustment.linux.mut_or_insert_default();
                let mut namespace = LinuxNamespace::new();
                namespace.type_ = if anew { removal(&key) } else { key };
                linux.namespaces.push(namespace);
            }
            12 => {
                let linux = adjustment.linux.mut_or_insert_default();
                let rdt = linux.rdt.mut_or_insert_default();
                rdt.remove |= anew;
                let mut class = OptionalString::new();
                class.value = text;
                rdt.clos_id = Some(class).into();
            }
            _ => {
                let linux = adjustment.linux.mut_or_insert_default();
                linux.cgroups_path = text;
            }
        }
    }
}

fn device(path: &str, major: u64) -> LinuxDevice {
    let mut device = LinuxDevice::new();
    path.clone_into(&mut device.path);
    device.major = i64::try_from(major).unwrap_or_default();
    device
}
