module ttrpc-keepalive/interop

go 1.25.0

require (
	github.com/containerd/ttrpc v1.0.2
	github.com/gogo/protobuf v1.3.1
	google.golang.org/grpc v1.26.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/golang/protobuf v1.5.0 // indirect
	github.com/konsorten/go-windows-terminal-sequences v1.0.2 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/sirupsen/logrus v1.4.2 // indirect
	golang.org/x/sys v0.0.0-20200120151820-655fe14d7479 // indirect
	google.golang.org/genproto v0.0.0-20200117163144-32f20d992d24 // indirect
)
