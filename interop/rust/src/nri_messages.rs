//! The messages of the NRI crate, and those of Go's module.

use std::collections::BTreeSet;

use protobuf::MessageDyn;
use protobuf::reflect::{ReflectValueRef, RuntimeFieldType};
use ttrpc_keepalive_nri::api::file_descriptor;

use crate::Result;
use crate::process::Process;
use crate::report::{Report, World, claim};

pub(crate) async fn all(world: &World, report: &mut Report) {
    let name = "Go NRI messages 0.12.5: every field of every message, both ways";
    report.pairing(name, every_field(world)).await;
}

/// Encoded there with every field set, decoded here, where none may be unknown, encoded here, and compared there
/// with what it was.
async fn every_field(world: &World) -> Result<String> {
    let program = world.program("interop/go/nri-messages-0.12.5");
    let mut go = Process::start(&program, &[], &world.socket())?;
    let file = file_descriptor();
    let mut own: BTreeSet<String> = file
        .messages()
        .map(|message| message.name().to_owned())
        .collect();
    let mut lines = Vec::new();
    loop {
        let line = go.line().await?;
        let Some((name, text)) = line.split_once(' ') else {
            claim!(line == "end", "{line}");
            break;
        };
        let descriptor = file.message_by_package_relative_name(name);
        let descriptor = descriptor.ok_or_else(|| format!("there is no message {name}"))?;
        own.remove(name);
        let message = descriptor.parse_from_bytes(&base64(text)?)?;
        claim!(
            !has_unknown(&*message),
            "{name} has a field that is not known here"
        );
        lines.push(format!(
            "{name} {}",
            to_base64(&message.write_to_bytes_dyn()?)
        ));
    }
    claim!(own.is_empty(), "there only: {own:?}");
    for line in lines {
        go.tell(&line).await?;
    }
    go.tell("end").await?;
    go.outcome().await
}

/// Whether a message, or one in it, has a field that its description does not name: it would be written as it
/// was read.
fn has_unknown(message: &dyn MessageDyn) -> bool {
    let is_unknown = |value: ReflectValueRef<'_>| match value {
        ReflectValueRef::Message(message) => has_unknown(&*message),
        _ => false,
    };
    message.unknown_fields_dyn().iter().next().is_some()
        || message
            .descriptor_dyn()
            .fields()
            .any(|field| match field.runtime_field_type() {
                RuntimeFieldType::Singular(_) => field.get_singular(message).is_none_or(is_unknown),
                RuntimeFieldType::Repeated(_) => {
                    field.get_repeated(message).into_iter().any(is_unknown)
                }
                RuntimeFieldType::Map(..) => field
                    .get_map(message)
                    .into_iter()
                    .any(|(_, value)| is_unknown(value)),
            })
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn base64(text: &str) -> Result<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = ALPHABET.iter().position(|other| *other == byte);
        bits = bits << 6 | u32::try_from(digit.ok_or("not base64")?)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xFF)?);
        }
    }
    Ok(bytes)
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let whole = chunk
            .iter()
            .fold(0_usize, |whole, byte| whole << 8 | usize::from(*byte));
        let whole = whole << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = char::from(ALPHABET[whole >> (18 - 6 * place) & 63]);
            text.push(if place > chunk.len() { '=' } else { digit });
        }
    }
    text
}
