//! The macros that generated code calls. Their names, their arguments and what they return from are a
//! contract with ttrpc-codegen 0.4 to 0.7.

/// Makes `Error::Others` of an error, with words in front.
#[macro_export]
macro_rules! err_to_others {
    ($error:ident, $words:expr) => {
        |$error| $crate::Error::Others($words.to_string() + &$error.to_string())
    };
}

/// The body of a unary method of an async service.
#[macro_export]
macro_rules! async_request_handler {
    ($this:ident, $context:ident, $request:ident, $message:path, $method:ident) => {
        let request = <$message as $crate::proto::Codec>::decode(&$request.payload)
            .map_err($crate::err_to_others!(e, "Unpack request error "))?;
        return $crate::proto::response($this.service.$method(&$context, request).await);
    };
    ($this:ident, $context:ident, $request:ident, $module:ident, $message:ident, $method:ident) => {
        $crate::async_request_handler!(
            $this,
            $context,
            $request,
            super::$module::$message,
            $method
        );
    };
}

/// The body of a method with many requests.
#[macro_export]
macro_rules! async_client_streamimg_handler {
    ($this:ident, $context:ident, $stream:ident, $method:ident) => {
        let stream = $crate::asynchronous::ServerStreamReceiver::new($stream);
        let result = $this.service.$method(&$context, stream).await;
        return $crate::proto::response(result).map(Some);
    };
}

/// The body of a method with many responses.
#[macro_export]
macro_rules! async_server_streamimg_handler {
    ($this:ident, $context:ident, $stream:ident, $message:path, $method:ident) => {
        let request = $stream.recv().await?;
        let request = <$message as $crate::proto::Codec>::decode(&request)
            .map_err(|e| $crate::Error::Others(e.to_string()))?;
        let stream = $crate::asynchronous::ServerStreamSender::new($stream);
        let result = $this.service.$method(&$context, request, stream).await;
        return $crate::asynchronous::stream_end(result);
    };
    ($this:ident, $context:ident, $stream:ident, $module:ident, $message:ident, $method:ident) => {
        $crate::async_server_streamimg_handler!(
            $this,
            $context,
            $stream,
            super::$module::$message,
            $method
        );
    };
}

/// The body of a method with many of both.
#[macro_export]
macro_rules! async_duplex_streamimg_handler {
    ($this:ident, $context:ident, $stream:ident, $method:ident) => {
        let stream = $crate::asynchronous::ServerStream::new($stream);
        let result = $this.service.$method(&$context, stream).await;
        return $crate::asynchronous::stream_end(result);
    };
}

/// The body of a unary method of an async client.
#[macro_export]
macro_rules! async_client_request {
    ($this:ident, $context:ident, $request:ident, $service:expr, $method:expr, $response:ident) => {
        let payload = $crate::proto::Codec::encode($request)
            .map_err($crate::err_to_others!(e, "Encoding request "))?;
        let request = $crate::proto::request($service, $method, $context, payload);
        let response = $this.client.request(request).await?;
        $crate::proto::Codec::merge(&mut $response, &response.payload)
            .map_err($crate::err_to_others!(e, "Unpack get error "))?;
        return Ok($response);
    };
}

/// The body of a client's method with many of both.
#[macro_export]
macro_rules! async_client_stream {
    ($this:ident, $context:ident, $service:expr, $method:expr) => {
        let request = $crate::proto::request($service, $method, $context, Vec::new());
        let stream = $this.client.new_stream(request, true, true).await?;
        return Ok($crate::asynchronous::ClientStream::new(stream));
    };
}

/// The body of a client's method with many requests.
#[macro_export]
macro_rules! async_client_stream_send {
    ($this:ident, $context:ident, $service:expr, $method:expr) => {
        let request = $crate::proto::request($service, $method, $context, Vec::new());
        let stream = $this.client.new_stream(request, true, false).await?;
        return Ok($crate::asynchronous::ClientStreamSender::new(stream));
    };
}

/// The body of a client's method with many responses.
#[macro_export]
macro_rules! async_client_stream_receive {
    ($this:ident, $context:ident, $request:ident, $service:expr, $method:expr) => {
        let payload = $crate::proto::Codec::encode($request)
            .map_err($crate::err_to_others!(e, "Encoding request "))?;
        let request = $crate::proto::request($service, $method, $context, payload);
        let stream = $this.client.new_stream(request, false, true).await?;
        let client = ::core::convert::AsRef::as_ref(&$this.client);
        return Ok($crate::asynchronous::ClientStreamReceiver::with_native(
            stream, client,
        ));
    };
}

/// The body of a method of a sync service. It does not return: `Ok(())` follows.
#[macro_export]
macro_rules! request_handler {
    ($this:ident, $context:ident, $request:ident, $message:path, $method:ident) => {
        let request = <$message as $crate::proto::Codec>::decode(&$request.payload)
            .map_err($crate::err_to_others!(e, "Unpack request error "))?;
        let response = $crate::proto::response($this.service.$method(&$context, request))?;
        $context.respond($context.mh.stream_id, response)?
    };
    ($this:ident, $context:ident, $request:ident, $module:ident, $message:ident, $method:ident) => {
        $crate::request_handler!($this, $context, $request, super::$module::$message, $method);
    };
}

/// The body of a method of a sync client. It does not return: `Ok` follows.
#[macro_export]
macro_rules! client_request {
    ($this:ident, $context:ident, $request:ident, $service:expr, $method:expr, $response:ident) => {
        let payload = $crate::proto::Codec::encode($request)
            .map_err($crate::err_to_others!(e, "Encoding request "))?;
        let request = $crate::proto::request($service, $method, $context, payload);
        let response = $this.client.request(request)?;
        $crate::proto::Codec::merge(&mut $response, &response.payload)
            .map_err($crate::err_to_others!(e, "Unpack get error "))?;
    };
}
