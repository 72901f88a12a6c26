//! What is generated with each option. Its tests call through it.

/// With the traits of `async fn`.
pub mod native {
    include!(concat!(env!("OUT_DIR"), "/native/mod.rs"));
}

/// With traits for `dyn`.
pub mod boxed {
    include!(concat!(env!("OUT_DIR"), "/boxed/mod.rs"));
}

/// For messages that are elsewhere. Private, since lints then say more.
mod services {
    include!(concat!(env!("OUT_DIR"), "/services/mod.rs"));
}

/// For messages of prost.
pub mod prost {
    #[allow(missing_docs, clippy::all)]
    pub mod messages {
        include!(concat!(env!("OUT_DIR"), "/prost/messages/mod.rs"));
    }

    include!(concat!(env!("OUT_DIR"), "/prost/mod.rs"));
}

pub use services::echo_ttrpc::EchoClient;
