module ttrpc-keepalive/interop

go 1.25.0

require (
	github.com/containerd/ttrpc v1.2.2
	github.com/gogo/protobuf v1.3.2
	google.golang.org/grpc v1.27.1
	google.golang.org/protobuf v1.27.1
)

require (
	github.com/golang/protobuf v1.5.0 // indirect
	github.com/sirupsen/logrus v1.8.1 // indirect
	golang.org/x/sys v0.1.0 // indirect
	google.golang.org/genproto v0.0.0-20200224152610-e50cd9704f63 // indirect
)
