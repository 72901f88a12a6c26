//! The file of services as it is read by people, and as rustfmt leaves it.

use crate::imports::{Imports, RUNTIME};
use crate::layout::{Code, Link, Type};
use crate::services::{Kind, Method, Service};

/// How the methods of a trait return their futures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Futures {
    /// `async fn` of the language; the trait is for generics only.
    Native,
    /// By crate async-trait; the trait is for `dyn` too.
    Boxed,
}

/// The text of a file with the services of `proto`.
pub(crate) fn print(proto: &str, services: &[Service], futures: Futures) -> String {
    let printer = Printer {
        names: Imports::of(services, futures == Futures::Native),
        futures,
    };
    let mut code = Code::default();
    code.line(format!(
        "// @generated from {proto} by ttrpc-keepalive-codegen. Do not edit."
    ));
    code.line("");
    code.line(format!(
        "//! The services of `{proto}`: a trait for servers and a client for each."
    ));
    code.line("");
    // Few crates are both.
    code.line("#![allow(dead_code)]");
    code.line("");
    printer.names.print(&mut code);
    for service in services {
        code.line("");
        printer.interface(&mut code, service);
        code.line("");
        printer.function(&mut code, service);
        code.line("");
        printer.client(&mut code, service);
        code.line("");
        names(&mut code, service);
    }
    if services.iter().any(|service| !service.methods.is_empty()) {
        code.line("");
        printer.unimplemented(&mut code);
    }
    code.into_text()
}

struct Printer {
    names: Imports,
    futures: Futures,
}

impl Printer {
    /// The trait that a server implements.
    fn interface(&self, code: &mut Code, service: &Service) {
        let Service {
            full_name,
            interface,
            ..
        } = service;
        docs(
            code,
            &service.docs,
            &format!("The service `{full_name}`."),
            service.is_deprecated,
        );
        if !service.methods.is_empty() {
            let note = "A method that is not implemented is answered UNIMPLEMENTED.";
            code.docs(&[String::new(), note.to_owned()]);
        }
        if self.futures == Futures::Boxed {
            code.line("#[async_trait::async_trait]");
        }
        let (send, sync) = (self.names.name("Send"), self.names.name("Sync"));
        let head = format!("pub trait {interface}: {send} + {sync} + 'static {{");
        if service.methods.is_empty() {
            return code.line(format!("{head}}}"));
        }
        code.block(head, |code| {
            for (at, method) in service.methods.iter().enumerate() {
                if at > 0 {
                    code.line("");
                }
                method_head(code, service, method);
                self.handler(code, method);
            }
        });
    }

    fn handler(&self, code: &mut Code, method: &Method) {
        let messages = messages(method);
        let mut arguments = vec!["&self".to_owned()];
        arguments.push(format!("context: {}", self.names.name("Context")));
        let (request, response) = (
            self.names.message(&method.request),
            self.names.message(&method.response),
        );
        let request = match method.kind.takes_many() {
            true => self.names.generic("Requests", vec![request]),
            false => request,
        };
        arguments.push(format!("{}: {request}", messages[0]));
        let answer = if method.kind.gives_many() {
            let responses = self.names.generic("Responses", vec![response]);
            arguments.push(format!("responses: {responses}"));
            Type::plain("()")
        } else {
            response
        };
        let answer = self.names.generic(
            "Result",
            vec![answer, Type::Plain(self.names.name("Status"))],
        );
        let (head, result) = match self.futures {
            Futures::Native => {
                let (future, send) = (self.names.name("Future"), self.names.name("Send"));
                let result = Type::Plain(format!("impl {future}<Output = {answer}> + {send}"));
                (format!("fn {}", method.function), result)
            }
            Futures::Boxed => (format!("async fn {}", method.function), answer),
        };
        code.signature(&head, &arguments, &result);
        code.indented(|code| {
            match messages {
                [one] => code.line(format!("let _ = {one};")),
                many => code.line(format!("let _ = ({});", many.join(", "))),
            }
            code.line(match self.futures {
                Futures::Native => "std::future::ready(Err(unimplemented(&context)))",
                Futures::Boxed => "Err(unimplemented(&context))",
            });
        });
        code.line("}");
    }

    /// From an implementation of the trait to the service of the runtime.
    fn function(&self, code: &mut Code, service: &Service) {
        let Service {
            full_name,
            interface,
            names,
            parameter,
            ..
        } = service;
        code.docs(&[
            format!("Serves an implementation of `{interface}` as `{full_name}`; for"),
            format!("[`ServerBuilder::service`]({RUNTIME}::ServerBuilder::service)."),
        ]);
        let bounds = match self.futures {
            Futures::Native => interface.clone(),
            Futures::Boxed => format!("{interface} + ?{}", self.names.name("Sized")),
        };
        let head = format!("pub fn {}<{parameter}: {bounds}>", service.function);
        let state = format!("{}<{parameter}>", self.names.name("Arc"));
        let argument = format!("implementation: {state}");
        let result = self.names.generic("Service", vec![Type::plain(&state)]);
        code.signature(&head, &[argument], &result);
        code.indented(|code| {
            let name = self.names.name("Service");
            let (function, constant) = (format!("{name}::new"), format!("{names}::SERVICE"));
            let registrations: Vec<_> = service
                .methods
                .iter()
                .map(|method| registration(service, method))
                .collect();
            code.chain(&function, [&constant, "implementation"], &registrations);
        });
        code.line("}");
    }

    fn client(&self, code: &mut Code, service: &Service) {
        let Service {
            full_name,
            client,
            interface,
            ..
        } = service;
        let of_runtime = self.names.name("Client");
        code.docs(&[format!(
            "Calls `{full_name}`, the other side of `{interface}`."
        )]);
        code.line("#[derive(Clone, Debug)]");
        code.block(format!("pub struct {client} {{"), |code| {
            code.line(format!("client: {of_runtime},"));
        });
        code.line("");
        code.block(format!("impl {client} {{"), |code| {
            code.line("/// Calls over this connection, which others may use too.");
            code.block(
                format!("pub fn new(client: {of_runtime}) -> Self {{"),
                |code| {
                    code.line("Self { client }");
                },
            );
            code.line("");
            code.line("/// The connection.");
            code.block(
                format!("pub fn client(&self) -> &{of_runtime} {{"),
                |code| {
                    code.line("&self.client");
                },
            );
            for method in &service.methods {
                code.line("");
                method_head(code, service, method);
                self.call(code, &service.names, method);
            }
        });
    }

    fn call(&self, code: &mut Code, names: &str, method: &Method) {
        let (request, response) = (
            self.names.message(&method.request),
            self.names.message(&method.response),
        );
        let mut arguments = vec!["&self".to_owned()];
        if !method.kind.takes_many() {
            arguments.push(format!("request: &{request}"));
        }
        let generic = |name, part| self.names.generic(name, vec![part]);
        let (call, result) = match method.kind {
            Kind::Unary => ("Call", response),
            Kind::ServerStream => ("StreamCall", generic("Receiver", response)),
            Kind::ClientStream => {
                let halves = vec![generic("Sender", request), generic("Reply", response)];
                ("StreamCall", Type::Tuple(halves))
            }
            Kind::BidiStream => {
                let halves = vec![generic("Sender", request), generic("Receiver", response)];
                ("StreamCall", Type::Tuple(halves))
            }
        };
        let result = self.names.generic(call, vec![result]);
        code.signature(&format!("pub fn {}", method.function), &arguments, &result);
        code.indented(|code| {
            let function = match method.kind {
                Kind::Unary => "call",
                kind => function_of(kind),
            };
            let (service, constant) = (
                format!("{names}::SERVICE"),
                format!("{names}::{}", method.constant),
            );
            let arguments = [service.as_str(), &constant, "request"];
            let arguments = if method.kind.takes_many() {
                &arguments[..2]
            } else {
                &arguments
            };
            code.method_call("self.client", function, arguments);
        });
        code.line("}");
    }

    fn unimplemented(&self, code: &mut Code) {
        let (context, status) = (self.names.name("Context"), self.names.name("Status"));
        let head = format!("fn unimplemented(context: &{context}) -> {status} {{");
        code.block(head, |code| {
            code.line("let (service, method) = (context.service(), context.method());");
            code.line("let message = format!(\"{service:?} does not implement {method:?}\");");
            code.line(format!(
                "{status}::new({}::UNIMPLEMENTED, message)",
                self.names.name("Code")
            ));
        });
    }
}

/// Adds a handler to the service.
fn registration(service: &Service, method: &Method) -> Link {
    let Service {
        names, parameter, ..
    } = service;
    let messages = messages(method).join(", ");
    Link {
        function: function_of(method.kind),
        argument: format!("{names}::{}", method.constant),
        closure: format!("|service, context, {messages}| async move {{"),
        call: format!("{parameter}::{}", method.function),
        call_arguments: format!("&service, context, {messages}"),
    }
}

fn names(code: &mut Code, service: &Service) {
    let Service {
        full_name, names, ..
    } = service;
    code.docs(&[format!("The names of `{full_name}` and of its methods.")]);
    code.block(format!("pub mod {names} {{"), |code| {
        code.line("/// The service.");
        code.text_constant("SERVICE", full_name);
        for Method { name, constant, .. } in &service.methods {
            code.line(format!("/// The method `{name}`."));
            code.text_constant(constant, name);
        }
    });
}

fn function_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Unary => "unary",
        Kind::ServerStream => "server_stream",
        Kind::ClientStream => "client_stream",
        Kind::BidiStream => "bidi_stream",
    }
}

/// The arguments of a handler behind its context.
fn messages(method: &Method) -> &'static [&'static str] {
    match method.kind {
        Kind::Unary => &["request"],
        Kind::ServerStream => &["request", "responses"],
        Kind::ClientStream => &["requests"],
        Kind::BidiStream => &["requests", "responses"],
    }
}

fn method_head(code: &mut Code, service: &Service, method: &Method) {
    let otherwise = format!("`{}` of `{}`.", method.name, service.full_name);
    docs(code, &method.docs, &otherwise, method.is_deprecated);
    // Clippy takes such names for conversions.
    if ["from_", "into_"]
        .iter()
        .any(|prefix| method.function.starts_with(prefix))
    {
        code.line("#[allow(clippy::wrong_self_convention)]");
    }
}

fn docs(code: &mut Code, comment: &[String], otherwise: &str, is_deprecated: bool) {
    if comment.is_empty() {
        code.docs(&[otherwise.to_owned()]);
    } else {
        code.docs(comment);
    }
    if is_deprecated {
        code.docs(&[String::new(), "Deprecated.".to_owned()]);
    }
}
