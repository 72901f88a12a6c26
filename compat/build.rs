//! Generates the messages of ttrpc itself, without protoc. They are not checked in: what
//! protobuf-codegen writes compiles with the protobuf of the very same version only.

fn main() {
    protobuf_codegen::Codegen::new()
        .pure()
        .input("proto/ttrpc.proto")
        .include("proto")
        .customize(protobuf_codegen::Customize::default().generate_accessors(true))
        .cargo_out_dir("proto")
        .run_from_script();
}
