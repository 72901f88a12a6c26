module ttrpc-keepalive/interop

go 1.25.0
