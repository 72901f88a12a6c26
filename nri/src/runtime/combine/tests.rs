use std::collections::BTreeMap;

use proptest::prelude::*;
use protobuf::Message;
use protobuf::text_format::{parse_from_str, print_to_string};

use super::*;
use crate::api::Field;

/// A message from its text, as a test reads best.
fn text<M: protobuf::MessageFull>(text: &str) -> M {
    parse_from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn creation(container: &str) -> Creation {
    Creation::new(PodSandbox::new(), text(container))
}

/// Has plugins `10-a`, `20-b` and so on answer one after another.
fn create(container: &str, answers: &[&str]) -> Result<Creation, Conflict> {
    let mut creation = creation(container);
    for (plugin, answer) in ["10-a", "20-b", "30-c"].iter().zip(answers) {
        creation.add(&text(answer), plugin)?;
    }
    Ok(creation)
}

/// Answers that go together: the container, what each plugin answers, the adjustment, and the container as
/// the next plugin sees it.
const TOGETHER: &[(&str, &[&str], &str, &str)] = &[
    (
        "env: 'A=1'",
        &[
            "adjust { env { key: 'B' value: '2' } }",
            "adjust { env { key: 'C' value: '3' } }",
        ],
        "env { key: 'B' value: '2' } env { key: 'C' value: '3' }",
        "env: 'A=1' env: 'B=2' env: 'C=3'",
    ),
    // What was there is replaced, and need not be removed.
    (
        "env: 'A=1' env: 'AB=2'",
        &["adjust { env { key: 'A' value: 'new' } }"],
        "env { key: 'A' value: 'new' }",
        "env: 'AB=2' env: 'A=new'",
    ),
    // What is only removed keeps its mark, so that the runtime knows.
    (
        "env: 'A=1'",
        &["adjust { env { key: '-A' } }"],
        "env { key: '-A' }",
        "",
    ),
    // What another plugin has set may be removed and then set.
    (
        "",
        &[
            "adjust { env { key: 'A' value: '1' } }",
            "adjust { env { key: '-A' } env { key: 'A' value: '2' } }",
        ],
        "env { key: 'A' value: '2' }",
        "env: 'A=2'",
    ),
    (
        "mounts { destination: '/data' source: '/old' }",
        &[
            "adjust { mounts { destination: '/data' source: '/new' } }",
            "adjust { mounts { destination: '/cache' } mounts { destination: '-/data' } }",
        ],
        "mounts { destination: '/cache' } mounts { destination: '-/data' }",
        "mounts { destination: '/cache' }",
    ),
    (
        "annotations { key: 'k' value: 'old' }",
        &[
            "adjust { annotations { key: '-k' } }",
            "adjust { annotations { key: 'k' value: 'new' } }",
        ],
        "annotations { key: 'k' value: 'new' }",
        "annotations { key: 'k' value: 'new' }",
    ),
    (
        "args: 'sh'",
        &[
            "adjust { args: 'a' }",
            "adjust { args: '' args: 'b' args: 'c' }",
        ],
        "args: 'b' args: 'c'",
        "args: 'b' args: 'c'",
    ),
    // Hooks belong to everybody.
    (
        "hooks { prestart { path: '/0' } }",
        &[
            "adjust { hooks { prestart { path: '/1' } } }",
            "adjust { hooks { prestart { path: '/2' } } }",
        ],
        "hooks { prestart { path: '/1' } prestart { path: '/2' } }",
        "hooks { prestart { path: '/0' } prestart { path: '/1' } prestart { path: '/2' } }",
    ),
    (
        "linux { resources { memory { limit { value: 1 } swap { value: 2 } } } }",
        &[
            "adjust { linux { resources { memory { limit { value: 7 } } } } }",
            "adjust { linux { resources { cpu { cpus: '0-1' } pids { limit: 5 } } } }",
        ],
        "linux { resources { memory { limit { value: 7 } } cpu { cpus: '0-1' } pids { limit: 5 } } }",
        "linux { resources { memory { limit { value: 7 } swap { value: 2 } } \
         cpu { cpus: '0-1' } pids { limit: 5 } } }",
    ),
    (
        "linux { rdt { clos_id { value: 'old' } } }",
        &[
            "adjust { linux { rdt { clos_id { value: 'a' } } } }",
            "adjust { linux { rdt { remove: true } } }",
        ],
        "linux { rdt { remove: true } }",
        "linux { rdt { } }",
    ),
    (
        "linux { namespaces { type: 'net' path: '/n' } }",
        &["adjust { linux { namespaces { type: '-net' } } }"],
        "linux { namespaces { type: '-net' } }",
        "linux { }",
    ),
    (
        "rlimits { type: 'NOFILE' soft: 1 }",
        &["adjust { rlimits { type: 'NOFILE' soft: 9 } CDI_devices { name: 'vendor.com/net=a' } }"],
        "rlimits { type: 'NOFILE' soft: 9 } CDI_devices { name: 'vendor.com/net=a' }",
        "rlimits { type: 'NOFILE' soft: 9 }",
    ),
];

#[test]
fn answers_that_go_together_are_one_adjustment() {
    for (container, answers, adjustment, seen) in TOGETHER {
        let creation = create(container, answers).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            *creation.request().container,
            text::<Container>(seen),
            "{answers:?}"
        );
        assert_eq!(
            creation.finish().adjustment,
            text::<ContainerAdjustment>(adjustment),
            "{answers:?}"
        );
    }
}

/// Answers that do not, and what is said.
const CONFLICTS: &[(&[&str], Field, &str)] = &[
    (
        &["adjust { env { key: 'A' } }", "adjust { env { key: 'A' } }"],
        Field::Env,
        "plugins 10-a and 20-b both set Env \"A\" of container c",
    ),
    (
        &["adjust { mounts { destination: '/x' } mounts { destination: '/x' } }"],
        Field::Mounts,
        "plugin 10-a sets Mounts \"/x\" of container c twice",
    ),
    // Who removes it takes it over.
    (
        &[
            "adjust { env { key: 'A' } }",
            "adjust { env { key: '-A' } }",
            "adjust { env { key: 'A' } }",
        ],
        Field::Env,
        "plugins 20-b and 30-c both set Env \"A\" of container c",
    ),
    (
        &["adjust { args: 'a' }", "adjust { args: 'b' }"],
        Field::Args,
        "plugins 10-a and 20-b both set Args of container c",
    ),
    (
        &[
            "adjust { linux { resources { cpu { shares { value: 1 } } } } }",
            "adjust { linux { resources { cpu { shares { value: 1 } } } } }",
        ],
        Field::CPUShares,
        "plugins 10-a and 20-b both set CPUShares of container c",
    ),
    (
        &[
            "adjust { linux { namespaces { type: '-net' } } }",
            "adjust { linux { namespaces { type: 'net' } } }",
        ],
        Field::Namespace,
        "plugins 10-a and 20-b both set Namespace \"net\" of container c",
    ),
    (
        &[
            "adjust { CDI_devices { name: 'v' } }",
            "adjust { CDI_devices { name: 'v' } }",
        ],
        Field::CdiDevices,
        "plugins 10-a and 20-b both set CdiDevices \"v\" of container c",
    ),
    (
        &[
            "update { container_id: 'd' linux { resources { memory { limit { value: 1 } } } } }",
            "update { container_id: 'd' linux { resources { memory { limit { value: 2 } } } } }",
        ],
        Field::MemLimit,
        "plugins 10-a and 20-b both set MemLimit of container d",
    ),
];

#[test]
fn a_conflict_names_both_plugins_the_field_and_its_entry() {
    for (answers, field, says) in CONFLICTS {
        let conflict = create("id: 'c'", answers).unwrap_err();
        assert_eq!(conflict.to_string(), *says);
        assert_eq!(conflict.field(), Some(*field));
    }
}

#[test]
fn a_container_is_not_updated_while_it_is_created() {
    let conflict = create("id: 'c'", &["update { container_id: 'c' }"]).unwrap_err();
    assert_eq!(
        conflict.to_string(),
        "plugin 10-a updates container c while that is being created"
    );
}

#[test]
fn an_update_whose_failure_is_to_be_ignored_is_left_out_whole() {
    let creation = create(
        "id: 'c'",
        &[
            "update { container_id: 'd' linux { resources { memory { limit { value: 1 } } } } }",
            "update { container_id: 'd' ignore_failure: true \
             linux { resources { cpu { cpus: '3' } memory { limit { value: 2 } } } } }",
            "update { container_id: 'd' linux { resources { cpu { cpus: '4' } } } }",
        ],
    )
    .unwrap();
    let expected = "container_id: 'd' \
                    linux { resources { memory { limit { value: 1 } } cpu { cpus: '4' } } }";
    assert_eq!(creation.finish().updates, [text(expected)]);
}

#[test]
fn an_updated_container_gets_what_the_runtime_wanted_and_plugins_changed() {
    let container: Container = text("id: 'c'");
    let wanted = text("memory { limit { value: 1 } } cpu { cpus: '0' }");
    let mut update = Updating::new(PodSandbox::new(), container, wanted);
    let changed = "update { container_id: 'd' linux { resources { pids { limit: 1 } } } } \
                   update { container_id: 'c' linux { resources { memory { limit { value: 2 } } } } }";
    update.add(&text(changed), "10-a").unwrap();
    let expected: LinuxResources = text("memory { limit { value: 2 } } cpu { cpus: '0' }");
    assert_eq!(*update.request().linux_resources, expected);
    let again =
        "update { container_id: 'c' linux { resources { memory { limit { value: 3 } } } } }";
    assert!(update.add(&text(again), "20-b").is_err());
    let updated = update.finish();
    assert_eq!(updated.resources, expected);
    let others: Vec<_> = updated
        .updates
        .iter()
        .map(|update| &*update.container_id)
        .collect();
    assert_eq!(others, ["d"]);
}

#[test]
fn validators_see_the_container_as_it_was_and_who_set_what() {
    let creation = create(
        "id: 'c' env: 'A=1'",
        &[
            "adjust { env { key: 'B' value: '2' } linux { cgroups_path: '/p' } }",
            "adjust { env { key: '-B' } hooks { poststop { path: '/h' } } }",
            "adjust { hooks { poststop { path: '/i' } } }",
        ],
    )
    .unwrap();
    let request = creation.validation(Vec::new());
    assert_eq!(*request.container, text::<Container>("id: 'c' env: 'A=1'"));
    let expected = "owners { key: 'c' value { \
        simple { key: 28 value: '10-a' } \
        simple { key: 3 value: '20-b,30-c' } \
        compound { key: 6 value { owners { key: 'B' value: '-20-b' } } } \
    } }";
    assert_eq!(*request.owners, text::<OwningPlugins>(expected));
}

/// An adjustment that sets and removes some of few keys, so that plugins meet.
fn adjustments() -> impl Strategy<Value = String> {
    let key = prop_oneof![Just("k"), Just("l"), Just("m")];
    let mark = prop_oneof![3 => Just(""), 2 => Just("-")];
    let keyed = (mark, key, 0..9).prop_flat_map(|(mark, key, value)| {
        prop_oneof![
            Just(format!("env {{ key: '{mark}{key}' value: '{value}' }}")),
            Just(format!(
                "annotations {{ key: '{mark}{key}' value: '{value}' }}"
            )),
            Just(format!(
                "mounts {{ destination: '{mark}{key}' source: '{value}' }}"
            )),
            Just(format!(
                "linux {{ devices {{ path: '{mark}{key}' major: {value} }} }}"
            )),
            Just(format!(
                "linux {{ sysctl {{ key: '{mark}{key}' value: '{value}' }} }}"
            )),
            Just(format!(
                "linux {{ net_devices {{ key: '{mark}{key}' value {{ name: '{value}' }} }} }}"
            )),
            Just(format!(
                "linux {{ namespaces {{ type: '{mark}{key}' path: '{value}' }} }}"
            )),
        ]
    });
    let single = (0..9).prop_flat_map(|value| {
        prop_oneof![
            Just(format!("args: '{value}'")),
            Just(format!("args: '' args: '{value}'")),
            Just(format!("linux {{ cgroups_path: '{value}' }}")),
            Just(format!(
                "linux {{ resources {{ memory {{ limit {{ value: {value} }} }} }} }}"
            )),
            Just(format!(
                "linux {{ resources {{ cpu {{ mems: '{value}' }} }} }}"
            )),
            Just("linux { rdt { remove: true } }".to_owned()),
            Just(format!(
                "linux {{ rdt {{ clos_id {{ value: '{value}' }} }} }}"
            )),
        ]
    });
    prop::collection::vec(prop_oneof![4 => keyed, 1 => single], 0..5).prop_map(|parts| {
        // One message of several texts, as protobuf merges them.
        let mut whole = ContainerAdjustment::new();
        for part in parts {
            let part: ContainerAdjustment = text(&part);
            whole
                .merge_from_bytes(&part.write_to_bytes().unwrap())
                .unwrap();
        }
        print_to_string(&whole)
    })
}

fn container() -> Container {
    text(
        "id: 'c' env: 'k=0' env: 'l=0' annotations { key: 'k' } mounts { destination: 'k' } \
         linux { devices { path: 'l' } sysctl { key: 'm' } namespaces { type: 'l' } \
         rdt { clos_id { value: 'o' } } }",
    )
}

/// Lists in an order that does not depend on who came first.
fn sorted(mut container: Container) -> Container {
    container.env.sort();
    container
        .mounts
        .sort_by(|a, b| a.destination.cmp(&b.destination));
    let linux = container.linux.mut_or_insert_default();
    linux.devices.sort_by(|a, b| a.path.cmp(&b.path));
    linux.namespaces.sort_by(|a, b| a.type_.cmp(&b.type_));
    container
}

/// All fields that somebody owns, and who.
fn owned(owners: &OwningPlugins) -> BTreeMap<String, String> {
    let mut owned = BTreeMap::new();
    for owners in owners.owners.values() {
        for (field, owner) in &owners.simple {
            owned.insert(format!("{field}"), owner.clone());
        }
        for (field, entries) in &owners.compound {
            for (key, owner) in &entries.owners {
                owned.insert(format!("{field} {key}"), owner.clone());
            }
        }
    }
    owned
}

proptest! {
    /// The runtime applies the whole adjustment at once, and the plugins saw it grow.
    #[test]
    fn the_last_plugin_sees_the_container_that_the_adjustment_makes(
        answers in prop::collection::vec(adjustments(), 1..4),
    ) {
        let mut creation = Creation::new(PodSandbox::new(), container());
        for (plugin, answer) in ["10-a", "20-b", "30-c"].iter().zip(&answers) {
            let mut response = CreateContainerResponse::new();
            response.adjust = Some(text(answer)).into();
            if creation.add(&response, plugin).is_err() {
                return Ok(());
            }
        }
        let seen = (*creation.request().container).clone();
        let mut made = container();
        adjustment::apply_to(&creation.finish().adjustment, &mut made);
        prop_assert_eq!(sorted(seen), sorted(made));
    }

    /// A conflict is no matter of who is asked first, unless somebody removes what is another's.
    #[test]
    fn without_removals_order_decides_nothing(
        one in adjustments(),
        two in adjustments(),
    ) {
        if one.contains("\"-") || two.contains("\"-") || one.contains("\"\"")
            || two.contains("\"\"") || one.contains("remove") || two.contains("remove") {
            return Ok(());
        }
        let combined = |first: &str, second: &str, names: [&str; 2]| {
            let mut creation = Creation::new(PodSandbox::new(), container());
            for (plugin, answer) in names.iter().zip([first, second]) {
                let mut response = CreateContainerResponse::new();
                response.adjust = Some(text(answer)).into();
                creation.add(&response, plugin).ok()?;
            }
            let seen = sorted((*creation.request().container).clone());
            Some((seen, owned(&creation.finish().owners)))
        };
        let forth = combined(&one, &two, ["10-a", "20-b"]);
        let back = combined(&two, &one, ["20-b", "10-a"]);
        prop_assert_eq!(forth, back);
    }
}
