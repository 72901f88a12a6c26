use ttrpc_keepalive_codegen::{Codegen, Error};

fn main() -> Result<(), Error> {
    Codegen::new().input("proto/services.proto").build()
}
