// Written by trapeze-codegen 0.7.6 from ../proto/interop.proto. It is checked in because that generator needs protoc.
/// On the wire these are google.protobuf.StringValue and Int64Value, which not all of the generators
/// know.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Text {
    #[prost(string, tag = "1")]
    pub value: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, PartialEq, ::prost::Message)]
pub struct Number {
    #[prost(int64, tag = "1")]
    pub value: i64,
}
#[allow(dead_code, non_snake_case)]
pub fn Unary<T: Unary>(
    target: impl std::convert::Into<std::sync::Arc<T>>,
) -> impl trapeze::__codegen_prelude::Service {
    struct Service<T: Unary> {
        target: std::sync::Arc<T>,
    }
    impl<T: Unary> trapeze::__codegen_prelude::Service for Service<T> {
        fn methods(
            &self,
        ) -> std::vec::Vec<
            (
                &'static str,
                std::sync::Arc<
                    dyn trapeze::__codegen_prelude::MethodHandler + Send + Sync,
                >,
            ),
        > {
            let target = &self.target;
            vec![
                ("/interop.Unary/Say", { let target = std::sync::Arc::clone(& target);
                std::sync::Arc::new(trapeze::__codegen_prelude::UnaryMethod::new(move |
                input | { let target = std::sync::Arc::clone(& target); async move {
                target.say(input). await } })) },), ("/interop.Unary/Sleep", { let target
                = std::sync::Arc::clone(& target);
                std::sync::Arc::new(trapeze::__codegen_prelude::UnaryMethod::new(move |
                input | { let target = std::sync::Arc::clone(& target); async move {
                target.sleep(input). await } })) },),
            ]
        }
    }
    Service { target: target.into() }
}
pub trait Unary: Send + Sync + 'static {
    #[allow(unused_variables)]
    fn say(
        &self,
        text: Text,
    ) -> impl trapeze::prelude::Future<Output = trapeze::Result<Text>> + Send {
        let not_found = trapeze::Status {
            code: trapeze::Code::NotFound as i32,
            message: "/interop.Unary/Say is not supported".into(),
            details: vec![],
        };
        async move { Err(not_found) }
    }
    #[allow(unused_variables)]
    fn sleep(
        &self,
        number: Number,
    ) -> impl trapeze::prelude::Future<Output = trapeze::Result<Number>> + Send {
        let not_found = trapeze::Status {
            code: trapeze::Code::NotFound as i32,
            message: "/interop.Unary/Sleep is not supported".into(),
            details: vec![],
        };
        async move { Err(not_found) }
    }
}
impl Unary for trapeze::Client {
    fn say(
        &self,
        text: Text,
    ) -> impl trapeze::prelude::Future<Output = trapeze::Result<Text>> + Send {
        trapeze::__codegen_prelude::RequestHandler::handle_unary_request(
            self,
            "interop.Unary".into(),
            "Say".into(),
            text,
        )
    }
    fn sleep(
        &self,
        number: Number,
    ) -> impl trapeze::prelude::Future<Output = trapeze::Result<Number>> + Send {
        trapeze::__codegen_prelude::RequestHandler::handle_unary_request(
            self,
            "interop.Unary".into(),
            "Sleep".into(),
            number,
        )
    }
}
#[allow(dead_code, non_snake_case)]
pub fn Streams<T: Streams>(
    target: impl std::convert::Into<std::sync::Arc<T>>,
) -> impl trapeze::__codegen_prelude::Service {
    struct Service<T: Streams> {
        target: std::sync::Arc<T>,
    }
    impl<T: Streams> trapeze::__codegen_prelude::Service for Service<T> {
        fn methods(
            &self,
        ) -> std::vec::Vec<
            (
                &'static str,
                std::sync::Arc<
                    dyn trapeze::__codegen_prelude::MethodHandler + Send + Sync,
                >,
            ),
        > {
            let target = &self.target;
            vec![
                ("/interop.Streams/Count", { let target = std::sync::Arc::clone(&
                target);
                std::sync::Arc::new(trapeze::__codegen_prelude::ServerStreamingMethod::new(move
                | input | { let target = std::sync::Arc::clone(& target);
                trapeze::stream::stream! { for await value in target.count(input) { yield
                value; } } })) },),
            ]
        }
    }
    Service { target: target.into() }
}
pub trait Streams: Send + Sync + 'static {
    #[allow(unused_variables)]
    fn count(
        &self,
        number: Number,
    ) -> impl trapeze::prelude::Stream<Item = trapeze::Result<Number>> + Send {
        let not_found = trapeze::Status {
            code: trapeze::Code::NotFound as i32,
            message: "/interop.Streams/Count is not supported".into(),
            details: vec![],
        };
        trapeze::stream::stream! {
            yield Err(not_found);
        }
    }
}
impl Streams for trapeze::Client {
    fn count(
        &self,
        number: Number,
    ) -> impl trapeze::prelude::Stream<Item = trapeze::Result<Number>> + Send {
        trapeze::__codegen_prelude::RequestHandler::handle_server_streaming_request(
            self,
            "interop.Streams".into(),
            "Count".into(),
            number,
        )
    }
}
