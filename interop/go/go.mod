module ttrpc-keepalive/interop

go 1.25.0

require (
	github.com/containerd/ttrpc v1.2.10
	github.com/gogo/protobuf v1.3.2
	golang.org/x/sys v0.46.0
	google.golang.org/grpc v1.81.1
	google.golang.org/protobuf v1.36.11
)

require (
	github.com/containerd/log v0.1.0 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260226221140-a57be14db171 // indirect
)
