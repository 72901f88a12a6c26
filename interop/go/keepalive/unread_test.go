//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package keepalive

import (
	"net"
	"path/filepath"
	"testing"
)

func TestUnreadBytesAreSeenInTheKernelWhileSomebodyReads(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if hasUnread(near) {
		t.Error("nothing was sent")
	}
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if !hasUnread(near) {
		t.Error("a byte lies in the socket")
	}
	one := make([]byte, 1)
	if _, err := near.Read(one); err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := near.Read(one)
		read <- err
	}()
	if hasUnread(near) {
		t.Error("it was read")
	}
	far.Close()
	<-read
	if hasUnread(near) {
		t.Error("the end is no byte")
	}
}
