//! What is generated for a service, by names of Rust.

use protobuf::descriptor::MethodDescriptorProto;

use crate::error::Error;
use crate::names::{Names, camel_case, constant_case, snake_case};
use crate::rust_types::{RustType, RustTypes};
use crate::sources::{Source, Sources};

#[derive(Debug)]
pub(crate) struct Service {
    /// On the wire: `demo.Echo`.
    pub(crate) full_name: String,
    pub(crate) docs: Vec<String>,
    pub(crate) is_deprecated: bool,
    /// The trait: `Echo`.
    pub(crate) interface: String,
    /// `EchoClient`
    pub(crate) client: String,
    /// The module of names: `echo_names`.
    pub(crate) names: String,
    /// The function that makes the service: `echo_service`.
    pub(crate) function: String,
    /// Its parameter for the implementation's type: `S`, unless a service has that name.
    pub(crate) parameter: String,
    pub(crate) methods: Vec<Method>,
}

#[derive(Debug)]
pub(crate) struct Method {
    /// On the wire: `GetURL`.
    pub(crate) name: String,
    pub(crate) docs: Vec<String>,
    pub(crate) is_deprecated: bool,
    pub(crate) kind: Kind,
    /// In the trait and the client: `get_url`.
    pub(crate) function: String,
    /// `GET_URL`
    pub(crate) constant: String,
    pub(crate) request: RustType,
    pub(crate) response: RustType,
}

/// By who may send many messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unary,
    ServerStream,
    ClientStream,
    BidiStream,
}

impl Kind {
    fn of(method: &MethodDescriptorProto) -> Self {
        match (method.client_streaming(), method.server_streaming()) {
            (false, false) => Self::Unary,
            (false, true) => Self::ServerStream,
            (true, false) => Self::ClientStream,
            (true, true) => Self::BidiStream,
        }
    }

    pub(crate) fn takes_many(self) -> bool {
        matches!(self, Self::ClientStream | Self::BidiStream)
    }

    pub(crate) fn gives_many(self) -> bool {
        matches!(self, Self::ServerStream | Self::BidiStream)
    }
}

/// What a client has beside its calls, and what every type has, which would come first.
const TAKEN: [&str; 6] = ["client", "clone", "fmt", "into", "new", "try_into"];

/// The services of one file, in its order.
pub(crate) fn services_of(
    file: &Source,
    sources: &Sources,
    types: &RustTypes,
) -> Result<Vec<Service>, Error> {
    let Some(descriptor) = sources.descriptor(&file.name) else {
        return Ok(Vec::new());
    };
    let mut in_file = Names::default();
    // Traits first: a service keeps its name, whatever else would be made of another one's.
    let interfaces: Vec<_> = descriptor
        .service
        .iter()
        .map(|service| in_file.give(camel_case(service.name())))
        .collect();
    let parameter = in_file.give("S".to_owned());
    let mut services = Vec::new();
    for (service, interface) in descriptor.service.iter().zip(interfaces) {
        let full_name = match descriptor.package() {
            "" => service.name().to_owned(),
            package => format!("{package}.{}", service.name()),
        };
        let mut functions = Names::with_taken(TAKEN);
        let mut in_names = Names::with_taken(["SERVICE"]);
        let mut methods = Vec::new();
        for method in &service.method {
            let within_file = format!("{}.{}", service.name(), method.name());
            let message = |name: &str| {
                types.get(name).cloned().ok_or_else(|| {
                    let reason = format!("`{name}` is no message");
                    Error::new(reason)
                        .in_file(&file.path)
                        .at(file.position_of(&within_file))
                })
            };
            methods.push(Method {
                name: method.name().to_owned(),
                docs: file.declarations.docs(&within_file).to_owned(),
                is_deprecated: method.options.deprecated(),
                kind: Kind::of(method),
                function: functions.give(snake_case(method.name())),
                constant: in_names.give(constant_case(method.name())),
                request: message(method.input_type())?,
                response: message(method.output_type())?,
            });
        }
        services.push(Service {
            full_name,
            docs: file.declarations.docs(service.name()).to_owned(),
            is_deprecated: service.options.deprecated(),
            client: in_file.give(format!("{interface}Client")),
            names: in_file.give(format!("{}_names", snake_case(service.name()))),
            function: in_file.give(format!("{}_service", snake_case(service.name()))),
            parameter: parameter.clone(),
            interface,
            methods,
        });
    }
    Ok(services)
}
